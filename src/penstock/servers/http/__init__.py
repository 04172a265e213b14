"""The HTTP server: an API for programs, and a dashboard for people."""

from penstock.servers.http.app import Application, application

__all__ = ["Application", "application"]
