//! Plain hyper: the layer around a function, one state for all connections.
//!
//! ```text
//! cargo run --example hyper
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/; done
//! ```

use std::convert::Infallible;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
use tower::{ServiceBuilder, ServiceExt};

async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap_or_else(|error| {
            eprintln!("PORT={port}: {error}; set a free port, such as PORT=3001");
            std::process::exit(1)
        });
    println!("listening on http://{}/", listener.local_addr()?);
    let limited = ServiceBuilder::new()
        .layer(RateLimitLayer::new(
            MemoryStore::new(),
            Quota::per_minute(3),
            key::PeerIp,
        ))
        .service_fn(hello);
    loop {
        let (stream, peer) = listener.accept().await?;
        // hyper knows nothing of the peer's address: each connection tells its requests.
        let service = limited
            .clone()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(key::PeerAddr(peer));
                request
            });
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = connection.await {
                eprintln!("connection with {peer}: {error}");
            }
        });
    }
}
