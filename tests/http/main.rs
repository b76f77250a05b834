//! The layer's behaviour over HTTP and gRPC: the contract of tower with services that watch how they are used, then
//! real sockets.

mod allocations;
mod axum;
mod cancellation;
mod compose;
mod concurrency;
mod config;
mod connect_info;
mod contract;
mod cors;
mod decision;
mod examples;
mod failure;
mod fleet;
mod grpc;
mod headers;
mod hyper;
mod keys;
mod logs;
mod policies;
mod refusals;
mod stacked;
mod support;
mod types;
