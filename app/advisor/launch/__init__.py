"""From a plan, or a layout somebody gives, to files that start the job."""
