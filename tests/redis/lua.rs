//! Syntax and style of the scripts, as the servers' own Lua compiles them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use redis::Value;

use crate::server::{Server, Version};

/// What is global in the Lua of every server that knows Redis's scripts, 5.4 too; and `tostring` loses digits.
const GLOBALS: &str = "ARGV KEYS ipairs math pairs redis string struct table tonumber type unpack";

/// Commands without a key.
const KEYLESS: [&str; 1] = ["'TIME'"];

/// What reads many keys, all of which it spreads out of the declared ones.
const SPREAD: &str = "'MGET', spread(KEYS, ";
const SPREADS: &str = "local spread, pack, unpack, floor = unpack, ";

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lua"))
}

fn read(name: &str) -> String {
    let path = directory().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files() -> BTreeSet<String> {
    let entries = fs::read_dir(directory()).expect("the scripts");
    let names = entries.map(|entry| entry.expect("a file").file_name().into_string().expect("text"));
    names.filter(|name| name.ends_with(".lua")).collect()
}

/// The name of the file that a line includes.
fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("-- @include ")
}

/// A file with all that it includes.
fn whole(name: &str) -> String {
    let mut text = String::new();
    for line in read(name).lines() {
        text += &included(line).map_or_else(|| line.to_owned(), whole);
        text.push('\n');
    }
    text
}

/// Scripts, whole: those that no other file includes.
fn scripts() -> Vec<(String, String)> {
    let mut names = files();
    for name in files() {
        for part in read(&name).lines().filter_map(included) {
            assert!(
                names.remove(part) || files().contains(part),
                "{name} includes {part}"
            );
        }
    }
    let scripts: Vec<_> = names
        .into_iter()
        .map(|name| (name.clone(), whole(&name)))
        .collect();
    assert!(scripts.len() >= 4, "acquire, peek, settle, reset: {scripts:?}");
    scripts
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn scripts_compile_on_every_server() {
    for version in Version::all() {
        let server = Server::start(version).await;
        for (name, text) in scripts() {
            let loaded = server.try_cli::<String>(&["SCRIPT", "LOAD", &text]).await;
            assert!(loaded.is_ok(), "{name} on {version:?}: {loaded:?}");
        }
    }
}

#[tokio::test]
async fn scripts_make_no_globals_and_use_few() {
    let server = Server::start(Version::V7).await;
    assert_eq!(
        globals(
            &server,
            "local a = b; function c() return function() d = a + e.f end end"
        )
        .await,
        ["get b", "get e", "set c", "set d"],
    );
    for (name, text) in scripts() {
        for global in globals(&server, &text).await {
            let read = global.strip_prefix("get ");
            let known = read.is_some_and(|global| GLOBALS.split(' ').any(|known| known == global));
            assert!(known, "{name}: {global}");
        }
    }
}

#[test]
fn scripts_touch_declared_keys_only() {
    for (name, text) in scripts() {
        let code = without_comments(&text);
        // Bound to another name, a call would escape the rest.
        for (at, _) in code.match_indices("redis") {
            let after = &code[at..];
            let arguments = ["redis.call(", "redis.pcall("]
                .iter()
                .find_map(|call| after.strip_prefix(call));
            let Some(arguments) = arguments else {
                panic!("{name}: {}", after.lines().next().unwrap_or_default());
            };
            let key = arguments.split_once(", ").map_or("", |(_, rest)| rest);
            let fine = KEYLESS.iter().any(|command| arguments.starts_with(command))
                || key.starts_with("KEYS[")
                || (arguments.starts_with(SPREAD) && code.contains(SPREADS));
            assert!(
                fine,
                "{name}: redis.call({}",
                arguments.lines().next().unwrap_or_default()
            );
        }
    }
}

#[test]
fn scripts_say_what_they_take_and_reply() {
    for (name, text) in scripts() {
        // A shebang, which 6.2 does not know, would be no comment.
        let header: Vec<_> = text.lines().take_while(|line| line.starts_with("--")).collect();
        for part in ["-- KEYS ", "-- ARGV ", "-- Reply "] {
            assert!(
                header.iter().any(|line| line.starts_with(part)),
                "{name}: no `{part}`"
            );
        }
    }
    for name in files() {
        for line in read(&name).lines() {
            assert!(line.trim_end() == line && !line.contains('\t'), "{name}: {line}");
        }
    }
}

/// The globals of a script, sorted, as the server's compiler finds them: `"get redis"`, `"set x"`.
async fn globals(server: &Server, text: &str) -> Vec<String> {
    let Value::BulkString(code) = server
        .cli(&["EVAL", "return string.dump(loadstring(ARGV[1]))", "0", text])
        .await
    else {
        panic!("no bytecode");
    };
    // Signature and version; then: format, little-endian, and the sizes of int, size_t, instructions and numbers.
    let header = b"\x1bLua\x51\0\x01\x04\x08\x04\x08\0";
    let mut code = Bytecode(code.strip_prefix(header).expect("Lua 5.1 on a 64-bit machine"));
    let mut found = BTreeSet::new();
    code.function(&mut found);
    found.into_iter().collect()
}

/// Lua 5.1's, read from its beginning.
struct Bytecode<'a>(&'a [u8]);

impl<'a> Bytecode<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn integer(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes")) as usize
    }

    fn string(&mut self) -> &'a [u8] {
        let length = u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"));
        self.take(usize::try_from(length).expect("it is in memory"))
    }

    fn function(&mut self, found: &mut BTreeSet<String>) {
        self.string();
        // Lines; numbers of upvalues, parameters and registers.
        self.take(4 + 4 + 4);
        let mut globals = Vec::new();
        for _ in 0..self.integer() {
            let instruction = self.integer();
            match instruction & 0x3f {
                5 => globals.push(("get", instruction >> 14)),
                7 => globals.push(("set", instruction >> 14)),
                _ => {}
            }
        }
        let mut constants = Vec::new();
        for _ in 0..self.integer() {
            let constant: &[u8] = match self.take(1)[0] {
                1 => self.take(1),
                3 => self.take(8),
                4 => self.string(),
                _ => &[],
            };
            constants.push(constant);
        }
        for (what, constant) in globals {
            let name = String::from_utf8_lossy(constants[constant]);
            found.insert(format!("{what} {}", name.trim_end_matches('\0')));
        }
        for _ in 0..self.integer() {
            self.function(found);
        }
        // What is for debuggers: lines, locals and upvalues.
        for _ in 0..self.integer() {
            self.integer();
        }
        for _ in 0..self.integer() {
            self.string();
            self.take(4 + 4);
        }
        for _ in 0..self.integer() {
            self.string();
        }
    }
}
