use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::*;
use tollgate::*;
fn now<T>(f: impl Future<Output = T>) -> T {
    match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(o) => o,
        _ => panic!(),
    }
}
fn main() {
    let url = std::env::args().nth(1).unwrap();
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let store = rt
        .block_on(
            RedisStore::builder()
                .deny_cache_age(Duration::from_secs(3600))
                .connect(&url),
        )
        .unwrap();
    let l = Limiter::new(store, Quota::per_hour(1));
    let key = Key::from("user:000001");
    rt.block_on(async {
        for _ in 0..4 {
            l.check(&key).await;
        }
    });
    let gov = governor::RateLimiter::keyed(
        governor::Quota::with_period(Duration::from_secs(3600))
            .unwrap()
            .allow_burst(std::num::NonZeroU32::MIN),
    );
    let text = "user:000001".to_owned();
    let _ = gov.check_key(&text);
    for _ in 0..7 {
        let n = 2_000_000;
        let s = Instant::now();
        for _ in 0..n {
            assert!(now(l.check(&key)).source() == Source::DenyCache);
        }
        let a = s.elapsed().as_nanos() as f64 / n as f64;
        let s = Instant::now();
        for _ in 0..n {
            assert!(gov.check_key(&text).is_err());
        }
        let b = s.elapsed().as_nanos() as f64 / n as f64;
        let s = Instant::now();
        for _ in 0..n {
            std::hint::black_box(Instant::now());
        }
        let c = s.elapsed().as_nanos() as f64 / n as f64;
        println!("{a:.1} {b:.1} {:.2} instant {c:.1}", a / b);
    }
}
