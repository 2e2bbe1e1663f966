"""The `webhook` handler: batches as JSON to an HTTP service, and what its answers mean."""

from handlers.webhook.handler import WebhookHandler

__all__ = ["WebhookHandler"]
