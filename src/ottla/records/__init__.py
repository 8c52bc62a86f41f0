"""Record batches (format v2): headers, records, control batches, compression, validation."""
