"""The cost of the dashboard: response times of its pages on a full store, and the effect of open tabs on workers."""
