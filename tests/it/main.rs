//! Integration tests, one binary for all.

mod algorithms;
mod cases;
mod conformance;
mod contracts;
mod edges;
mod embedded;
mod memory;
#[path = "../model/mod.rs"]
mod model;
mod penalties;
mod simulation;
#[path = "../steps.rs"]
mod steps;
