"""Topics archived as Parquet with manifests of offset ranges: written once, verified, merged, asked in SQL."""
