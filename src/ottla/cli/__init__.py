"""The commands: `ottla ...`. Heavy imports stand inside functions, because start-up time is a feature."""
