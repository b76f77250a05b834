//! The layer's behaviour over HTTP and gRPC: the contract of tower with services that watch how they are used, then
//! real sockets.

mod cancellation;
mod contract;
mod support;
mod types;
