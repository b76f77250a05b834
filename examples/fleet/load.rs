//! A client that goes round the instances, as a load balancer does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::instance::Instance;
use crate::report::Phase;

/// More than any deadline in the service.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Admitted,
    Denied,
    /// The service has no decision: its store gave no answer.
    Undecided,
    /// None of these, or no answer.
    Other,
}

#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) instance: usize,
    pub(crate) kind: Kind,
    /// When it was there, after the first request.
    pub(crate) at: Duration,
}

impl Answer {
    pub(crate) fn is_other(&self) -> bool {
        matches!(self.kind, Kind::Undecided | Kind::Other)
    }
}

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// Sends all requests, and waits for all answers.
pub(crate) async fn send(args: &Args, instances: &[Instance], name: &'static str, expected: u64) -> Phase {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: HttpClient = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(args.concurrency.div_ceil(instances.len()))
        .build(connector);
    let addresses: Arc<[SocketAddr]> = instances.iter().map(Instance::address).collect();
    let next = Arc::new(AtomicU64::new(0));
    let (requests, start) = (args.requests, Instant::now());

    let mut workers = JoinSet::new();
    for _ in 0..args.concurrency {
        let (client, addresses, next) = (client.clone(), addresses.clone(), next.clone());
        workers.spawn(async move {
            let mut answers = Vec::new();
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= requests {
                    return answers;
                }
                let instance = (request % addresses.len() as u64) as usize;
                let kind = get(&client, addresses[instance]).await;
                let at = start.elapsed();
                answers.push(Answer { instance, kind, at });
            }
        });
    }
    let mut answers = workers.join_all().await.concat();
    answers.sort_by_key(|answer| answer.at);
    Phase {
        name,
        expected,
        instances: instances.len(),
        answers,
    }
}

async fn get(client: &HttpClient, address: SocketAddr) -> Kind {
    let uri = Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query("/")
        .build()
        .expect("an address makes a URI");
    let exchange = async {
        let response = client.get(uri).await.ok()?;
        let status = response.status();
        // A connection is used again when its answer has been read.
        response.into_body().collect().await.ok()?;
        Some(status)
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(Some(StatusCode::OK)) => Kind::Admitted,
        Ok(Some(StatusCode::TOO_MANY_REQUESTS)) => Kind::Denied,
        Ok(Some(StatusCode::SERVICE_UNAVAILABLE)) => Kind::Undecided,
        _ => Kind::Other,
    }
}
