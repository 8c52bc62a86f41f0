"""The request handlers, one module per API key; `ottla.broker.dispatch` loads them when they are first needed."""
