"""The `webhook` handler: sends batches as JSON to an HTTP service."""

from handlers.webhook.handler import WebhookHandler

__all__ = ["WebhookHandler"]
