"""What the server says about itself: counters, histograms, gauges, logs and traces. It knows nothing of stores or wires."""
