//! Examples that share one limit between processes.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::process::Command;

use crate::support::{Example, Redis, built, within};

/// What the fleet came to: exit code, what it printed, and its errors.
async fn fleet(args: &[&str]) -> (Option<i32>, String, String) {
    let run = Command::new(built("fleet"))
        .args(args)
        .kill_on_drop(true)
        .output();
    let output = within(run).await.expect("it can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// Runs a small fleet that must be exact, and checks all that it writes.
async fn run_exact(name: &str, more: &[&str]) {
    let (json, svg) = (file(&format!("{name}.json")), file(&format!("{name}.svg")));
    let (json_arg, svg_arg) = (json.to_str().expect("text"), svg.to_str().expect("text"));
    let mut args = vec!["--instances", "2", "--requests", "61", "--limit", "10"];
    args.extend(["--json", json_arg, "--svg", svg_arg]);
    args.extend(more);
    let (code, output, errors) = fleet(&args).await;
    assert_eq!(code, Some(0), "{output}{errors}");
    // Admitted, expected, denied, other.
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in ["a store in each 20 20 41 0 ", "Redis for all 10 10 51 0 "] {
        assert!(words.contains(row), "{output}");
    }

    let text = std::fs::read_to_string(&json).expect("it was written");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(report["per_process"]["admitted"], 20, "{text}");
    assert_eq!(report["shared"]["admitted"], 10, "{text}");
    assert_eq!(report["shared"]["denied"], 51, "{text}");
    assert_eq!(report["shared"]["other"], 0, "{text}");
    assert_eq!(report["settings"]["window_seconds"], 60, "{text}");
    assert_eq!(
        report["versions"]["tollgate"],
        env!("CARGO_PKG_VERSION"),
        "{text}"
    );
    let requests: Vec<_> = report["shared"]["instances"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|instance| instance["requests"].as_u64())
        .collect();
    assert_eq!(requests, [Some(31), Some(30)], "{text}");

    let drawing = std::fs::read_to_string(&svg).expect("it was written");
    assert!(
        drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"),
        "{drawing}"
    );
    for label in ["a store in each: 20 admitted", "Redis for all: 10 admitted"] {
        assert!(drawing.contains(label), "{drawing}");
    }
    for path in [json, svg] {
        std::fs::remove_file(path).expect("it was written");
    }
}

#[tokio::test]
async fn c1_fleet_admits_the_limit() {
    // With the server that it starts and ends, and twice in a row with one that is there.
    if std::env::var_os("TOLLGATE_REDIS_7").is_none() {
        run_exact("own", &[]).await;
    }
    let redis = Redis::start().await;
    for run in ["first", "second"] {
        run_exact(run, &["--redis", &redis.url()]).await;
    }
}

#[tokio::test]
async fn fleet_says_what_is_wrong() {
    let (code, output, _) = fleet(&["--help"]).await;
    assert_eq!(code, Some(0));
    assert!(output.contains("--instances N"), "{output}");
    for (args, expected) in [
        (
            &["--instances", "0"][..],
            "`--instances` takes a number from 1 to 50, not `0`",
        ),
        (
            &["--limit", "many"],
            "`--limit` takes a number from 1 to 1000000, not `many`",
        ),
        (&["--requests", "99"], "99 requests cannot show a limit of 100"),
        (&["--window"], "missing argument"),
        (&["--frob"], "--frob"),
        (&["surplus"], "surplus"),
    ] {
        let (code, _, errors) = fleet(args).await;
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(expected) && errors.contains("--help"), "{errors}");
    }
    // Nobody listens there, and the password is nobody's business.
    let (code, _, errors) = fleet(&["--redis", "redis://:secret@127.0.0.1:1/"]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(
        errors.contains("`--redis`: 127.0.0.1:1 does not answer") && !errors.contains("secret"),
        "{errors}"
    );

    let mut without = Command::new(built("fleet"));
    let output = within(without.env("PATH", "").output())
        .await
        .expect("it can be started");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("apt install redis-server"), "{errors}");
}

#[tokio::test]
async fn fleet_says_that_redis_stopped_answering() {
    let redis = Redis::start().await;
    let url = redis.url();
    let args = ["--requests", "4000", "--limit", "4000", "--redis", &url];
    let end_when_it_counts = async {
        let client = redis::Client::open(url.as_str()).expect("a URL");
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("it answers");
        let mut counters = redis::cmd("KEYS");
        counters.arg("*run=fleet*");
        while counters
            .query_async::<Vec<String>>(&mut connection)
            .await
            .expect("names")
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(redis);
    };
    let ((code, output, errors), ()) = tokio::join!(fleet(&args), within(end_when_it_counts));
    assert_eq!(code, Some(1), "{output}{errors}");
    assert!(errors.contains("Redis stopped answering"), "{output}{errors}");
    assert!(errors.contains("WARN"), "{output}{errors}");
}

#[tokio::test]
async fn r38_quickstart_shares_its_limit() {
    let redis = Redis::start().await;
    let url = [("REDIS_URL", redis.url())];
    let url = url.each_ref().map(|(name, url)| (*name, url.as_str()));
    let one = Example::run_with("quickstart", &url).await;
    let other = Example::run_with("quickstart", &url).await;
    assert_eq!(one.remark, ", counting in Redis");
    for (more, instance) in (0..5).rev().zip([&one, &other].into_iter().cycle()) {
        let reply = instance.get("/").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.body, format!("hello, {more} more\n"));
    }
    for instance in [&one, &other] {
        assert_eq!(instance.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
        let alice = instance.get_with("/", "x-api-key", "alice").await;
        assert_eq!(alice.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn r38_service_counts_clients_behind_a_proxy() {
    const FORWARDED_FOR: &str = "x-forwarded-for";

    let redis = Redis::start().await;
    let url = redis.url();
    let variables = [
        ("REDIS_URL", url.as_str()),
        ("LIMIT", "3/minute"),
        ("INSTANCES", "2"),
    ];
    let one = Example::run_with("service", &variables).await;
    let other = Example::run_with("service", &variables).await;
    for (more, instance) in (0..3).rev().zip([&one, &other].into_iter().cycle()) {
        let reply = instance.get_with("/", FORWARDED_FOR, "198.51.100.7").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(
            reply.body,
            format!("hello from {}, {more} more\n", instance.address)
        );
    }
    for instance in [&one, &other] {
        // What a client sent itself stands on the left of what the proxy saw.
        for chain in ["198.51.100.7", "203.0.113.9, 198.51.100.7"] {
            let reply = instance.get_with("/", FORWARDED_FOR, chain).await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{chain}");
        }
        let another = instance.get_with("/", FORWARDED_FOR, "203.0.113.9").await;
        assert_eq!(another.status, StatusCode::OK);
        assert_eq!(instance.statuses("/healthz", 9).await, [200; 9]);
    }
    #[cfg(unix)]
    for instance in [one, other] {
        let status = instance.terminate().await;
        assert!(status.success(), "{status}");
    }
}
