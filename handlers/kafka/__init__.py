"""The `kafka` handler: sends changes to topics chosen per table. The worker uses the module `librdkafka`
too, so that module does not import the handler."""
