//! Integration tests, one binary for all.

mod algorithms;
mod contracts;
mod embedded;
mod model;
mod steps;
