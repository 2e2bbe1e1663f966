"""The worker as a whole: made of its components, started, watched, reloaded, drained, ended; its
`handlers`."""
