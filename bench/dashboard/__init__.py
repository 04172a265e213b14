"""What the dashboard costs: how soon its pages answer on a full store, and what open tabs take from the workers."""
