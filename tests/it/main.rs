//! Integration tests, one binary for all.

mod algorithms;
mod model;
mod steps;
