//! A reverse proxy as a handler.
