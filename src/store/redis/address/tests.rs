//! URLs that are read, and that are refused.

use super::*;

fn parse(url: &str) -> Address {
    Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn login(url: &str, settings: &LinkSettings) -> (Option<String>, Option<String>) {
    let info = parse(url).connection_info(settings);
    let redis = info.redis_settings();
    (
        redis.username().map(str::to_owned),
        redis.password().map(str::to_owned),
    )
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn reads_and_shows_where() {
    for (url, shown) in [
        ("redis://127.0.0.1/", "127.0.0.1:6379/0"),
        ("redis://127.0.0.1", "127.0.0.1:6379/0"),
        ("REDIS://cache.example:7000/3", "cache.example:7000/3"),
        ("redis://[::1]:7000/3/", "[::1]:7000/3"),
        ("redis://app:pass@host/1?protocol=resp3", "host:6379/1"),
        ("redis://:pass@host", "host:6379/0"),
        #[cfg(unix)]
        ("unix:///run/redis.sock", "/run/redis.sock, database 0"),
        #[cfg(unix)]
        (
            "redis+unix:///run/redis.sock?db=2&user=app&pass=pass&protocol=2",
            "/run/redis.sock, database 2",
        ),
    ] {
        let address = parse(url);
        assert_eq!(address.to_string(), shown, "{url}");
        assert_eq!(format!("{address:?}"), format!("Address({shown})"));
    }
}

#[test]
fn reads_as_whom() {
    let none = LinkSettings::default();
    assert_eq!(login("redis://host", &none), (None, None));
    assert_eq!(login("redis://:p%40ss%2F@host", &none), (None, some("p@ss/")));
    assert_eq!(login("redis://app:pass@host", &none), (some("app"), some("pass")));
    assert_eq!(login("redis://app@host", &none), (some("app"), some("")));
    #[cfg(unix)]
    assert_eq!(
        login("unix:///s?user=app&pass=a%26b", &none),
        (some("app"), some("a&b"))
    );
}

#[test]
fn settings_go_first() {
    let settings = LinkSettings {
        username: some("other"),
        password: Some(Password::fixed("secret")),
        database: Some(7),
        ..LinkSettings::default()
    };
    assert_eq!(
        login("redis://app:pass@host/1", &settings),
        (some("other"), some("secret"))
    );
    let address = parse("redis://app:pass@host/1").with_database(settings.database);
    assert_eq!(
        (address.database(), address.to_string().as_str()),
        (7, "host:6379/7")
    );
    assert_eq!(parse("redis://host/1").with_database(None).database(), 1);
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn refuses_what_it_does_not_understand() {
    for (url, hint) in [
        ("127.0.0.1:6379", "no scheme"),
        ("", "no scheme"),
        ("http://host", "scheme is unknown"),
        ("redis-sentinel://a,b/primary", "not supported yet"),
        ("redis-cluster://a", "not supported yet"),
        ("valkey://host", "write redis://"),
        ("redis://", "host"),
        ("redis:///0", "host"),
        ("redis://host:port", "host:port"),
        ("redis://host:99999", "host:port"),
        ("redis://0.0.0.0", "127.0.0.1"),
        ("redis://host/zero", "number of a database"),
        ("redis://host/-1", "number of a database"),
        ("redis://host/1/2", "number of a database"),
        ("redis://host?db=1", "into the path"),
        ("redis://host?timeout=1", "\"timeout\" is unknown"),
        ("redis://host?protocol=4", "resp3"),
        ("redis://host/#insecure", "fragment"),
        ("redis://:%ff@host", "UTF-8"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix:///", "three slashes"),
        ("unix:///run/redis.sock?db=x", "number of a database"),
        ("unix:///run/redis.sock?database=1", "unknown parameter"),
    ] {
        let error = Address::parse(url).expect_err(url);
        assert_eq!(error.kind(), ConnectErrorKind::Url, "{url}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

#[test]
fn never_repeats_a_password() {
    for url in [
        "redis://app:s3cr/3t@host",
        "redis://app:12/s3cret@host/0",
        "redis://app:12?s3cret@host",
        "redis://app:12?s3cret=1@host",
        "redis://app:12#s3cret@host",
        "redis://app:s3cret@host:port/",
        "redis://app:s3cret@host/x",
        "redis://app:s3cret@host/?x=1",
        "redis://app:s3cret@/0",
        "rediss-cluster://app:s3cret@host",
        "s3cret://app",
        "app:s3cret@host",
        "unix:///run/redis.sock?pass=a&s3cret",
        "unix:///run/redis.sock?pass=a&db=s3cret",
    ] {
        let error = Address::parse(url).expect_err(url);
        for part in ["s3cr", "3t@"] {
            assert!(!format!("{error} {error:?}").contains(part), "{url}: {error:?}");
        }
    }
    let address = parse("redis://app:s3cret@host/1");
    assert!(!format!("{address} {address:?}").contains("s3cret"));
    assert!(!format!("{:?}", address.connection_info(&LinkSettings::default())).contains("s3cret"));
}

#[cfg(not(any(feature = "redis-rustls", feature = "redis-native-tls")))]
#[test]
fn tls_needs_a_feature() {
    let error = Address::parse("rediss://app:s3cret@host").unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::TlsFeature);
    for feature in ["redis-rustls", "redis-rustls-webpki-roots", "redis-native-tls"] {
        assert!(error.to_string().contains(feature));
    }
}

#[cfg(any(feature = "redis-rustls", feature = "redis-native-tls"))]
#[test]
fn tls_is_a_scheme() {
    let address = parse("rediss://app:s3cret@host:7000/2");
    assert!(address.is_tls());
    assert_eq!(address.to_string(), "host:7000/2");
    assert!(!parse("redis://host").is_tls());
}
