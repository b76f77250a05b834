//! `docker-compose.yml` and what it refers to, as far as text tells. `docker compose config` tells more.

use std::fs;
use std::path::{Path, PathBuf};

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn read(relative: &str) -> String {
    fs::read_to_string(path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
}

/// What follows `before` on lines of a text.
fn values<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix(before))
        .map(str::trim)
        .collect()
}

/// The numbers of a version with at least two.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.split('-').next()?;
    let mut numbers = text.split('.').map(str::parse);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((major, minor, numbers.next().unwrap_or(Ok(0)).ok()?))
}

#[test]
fn images_are_pinned() {
    let (compose, dockerfile) = (read("docker-compose.yml"), read("examples/compose/Dockerfile"));
    let mut images = values(&compose, "image: ");
    assert_eq!(images.len(), 3, "{images:?}");
    images.extend(values(&dockerfile, "FROM "));
    for image in images {
        let image = image.split(' ').next().unwrap_or_default();
        let tag = image.split_once(':').map(|(_, tag)| tag).unwrap_or_default();
        assert!(version(tag).is_some(), "{image} is another one tomorrow");
    }
}

/// CVE-2025-49844: whoever may send a script could run code on the server.
#[test]
fn servers_have_the_fix_for_scripts() {
    let compose = read("docker-compose.yml");
    for (image, least) in [("redis:", (8, 2, 2)), ("valkey/valkey:", (8, 1, 4))] {
        let [tag] = values(&compose, &format!("image: {image}"))[..] else {
            panic!("one {image}");
        };
        assert!(version(tag) >= Some(least), "{image}{tag} lacks it");
    }
}

#[test]
fn the_compiler_is_new_enough() {
    let dockerfile = read("examples/compose/Dockerfile");
    let [image, ..] = values(&dockerfile, "FROM rust:")[..] else {
        panic!("no compiler in {dockerfile}");
    };
    let least = version(env!("CARGO_PKG_RUST_VERSION"));
    assert!(
        least.is_some() && version(image) >= least,
        "{image} is older than {least:?}"
    );
}

#[test]
fn what_compose_refers_to_is_there() {
    let compose = read("docker-compose.yml");
    let [dockerfile] = values(&compose, "dockerfile: ")[..] else {
        panic!("one service is built");
    };
    assert!(path(dockerfile).is_file(), "{dockerfile}");
    // Copied without what the build makes itself.
    assert!(read(&format!("{dockerfile}.dockerignore")).contains("**/target"));
    for mount in values(&compose, "- ./") {
        let file = mount.split(':').next().unwrap_or_default();
        assert!(path(file).is_file(), "{file}");
    }
    assert!(read("examples/compose/nginx.conf").contains("server service:8080;"));
    // Every service says when it is well, and three instances share the limit.
    let services = compose.split_once("\nservices:\n").expect("services").1;
    let names = services
        .lines()
        .filter(|line| line.starts_with("  ") && !line[2..].starts_with([' ', '#']))
        .count();
    assert_eq!(values(services, "healthcheck:").len(), names);
    assert_eq!(values(services, "replicas: "), values(services, "INSTANCES: "));
}
