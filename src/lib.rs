//! Exact rate limiting for tower, axum, hyper and tonic services.
