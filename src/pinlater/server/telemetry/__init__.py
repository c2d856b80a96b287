"""Statistics and diagnostics of the server: counters, histograms, gauges, logs and traces. It knows nothing of stores or wires."""
