"""The commands: `ottla ...`. Heavy imports are inside functions, because start-up time is a feature."""
