//! Integration tests, one binary for all.

mod algorithms;
mod cases;
mod conformance;
mod contracts;
mod edges;
mod embedded;
mod memory;
mod model;
mod steps;
