"""The tour, `ottla demo`: a broker, orders that keep coming, and the pipeline that `ottla pipeline init` writes."""
