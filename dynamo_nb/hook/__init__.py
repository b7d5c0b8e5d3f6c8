"""Which frames are converted, and what is done after a miss: the policy around the native hook."""
