"""The rules of the broker as pure state machines: no clock, no I/O, no await. The shell in `ottla.broker` runs them."""
