"""Statistics and diagnostics of the server: counters, histograms, gauges, logs and traces. It knows nothing about stores or wires."""
