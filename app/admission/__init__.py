"""AdmissionReview in, decision out."""
