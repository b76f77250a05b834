//! The Redis store, on servers that the tests start, and behind networks that fail.

mod allocations;
mod batches;
mod callers;
mod cases;
mod cluster;
mod conformance;
mod deadlines;
mod ended;
mod equivalence;
mod exact;
mod faults;
mod harness;
mod keys;
mod late;
mod leaving;
mod local;
mod logs;
mod lost;
mod lua;
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
#[path = "../model/mod.rs"]
mod model;
mod penalties;
mod poison;
mod processes;
mod proxy;
mod scripted;
mod server;
mod settle;
mod several;
mod shared;
mod slots;
mod start;
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
#[path = "../steps.rs"]
mod steps;
mod support;
mod threads;
mod ttl;
mod writes;
