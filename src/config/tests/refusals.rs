use super::*;

/// Why a file is not read.
fn misread(text: &str) -> String {
    toml::from_str::<LayerConfig>(text).expect_err(text).to_string()
}

/// Why what was read is no layer.
fn refused(text: &str) -> ConfigError {
    read(text).layer(MemoryStore::new()).expect_err(text)
}

#[test]
fn impossible_values_are_refused_where_they_stand() {
    let policy = |rest: &str| format!("[[policies]]\n{POLICY}{rest}");
    let with_key = |rest: &str| policy(&format!("key = 'global'\n{rest}"));
    for (text, line, message) in [
        (
            "[[policies]]\nname = 'a b'".to_owned(),
            2,
            "`a b` does not name a policy",
        ),
        (
            "[[policies]]\nname = 'a'\nquota = '10/fortnight'".to_owned(),
            3,
            "is not a quota",
        ),
        (
            "[[policies]]\nname = 'a'\nquota = '10/s'".to_owned(),
            1,
            "missing field `key`",
        ),
        (
            policy("key = 'ip'"),
            4,
            "`ip` is not a key: write `global`, `peer-ip`, `client-ip`",
        ),
        (
            policy("key = 'header:a b'"),
            4,
            "`a b` is not the name of a header",
        ),
        (policy("key = 'header:'"), 4, "`` is not the name of a header"),
        (policy("key = 'custom:'"), 4, "`custom:` is not a key"),
        (policy("key = ['global', 'ip']"), 4, "`ip` is not a key"),
        (policy("key = []"), 4, "an empty list says nothing"),
        (policy("key = { any = [] }"), 4, "an empty list says nothing"),
        (
            policy("key = { all = ['global'] }"),
            4,
            "expected one of `any`, `hashed`, `readable`",
        ),
        (policy("key = 5"), 4, "expected a key such as `peer-ip`"),
        (
            policy("key = { any = ['bearer'], hashed = 'route' }"),
            4,
            "unexpected `hashed`",
        ),
        (
            with_key("missing-key = { reject = 401, zzz = 1 }"),
            5,
            "unexpected `zzz`",
        ),
        (
            with_key("failure-policy = { local = { instances = 4 }, zzz = true }"),
            5,
            "unexpected `zzz`",
        ),
        (
            with_key("cost = { content-length = { bytes-per-unit = 1 }, rules = [] }"),
            5,
            "unexpected `rules`",
        ),
        (
            with_key("qouta = 5"),
            5,
            "unknown field `qouta`, expected one of `name`, `quota`, `key`",
        ),
        (with_key("cost = -1"), 5, "expected u64"),
        (with_key("cost = '1'"), 5, "expected a number of units"),
        (
            with_key("cost = { content-length = { bytes-per-unit = 0 } }"),
            5,
            "a nonzero u64",
        ),
        (
            with_key("cost = { content-length = { bytes = 1 } }"),
            5,
            "unknown field `bytes`",
        ),
        (
            with_key("cost = { length = 1 }"),
            5,
            "expected `content-length` or `rules`",
        ),
        (with_key("cost = { rules = [] }"), 5, "an empty list says nothing"),
        (
            with_key("cost = { rules = [{ path = '/' }] }"),
            5,
            "unknown field `path`",
        ),
        (with_key("mode = 'on'"), 5, "use `enforce`, `shadow` or `off`"),
        (
            with_key("failure-policy = 'block'"),
            5,
            "expected `allow`, `deny`, `local` or",
        ),
        (
            with_key("failure-policy = { local = { instances = 0 } }"),
            5,
            "a nonzero u32",
        ),
        (
            with_key("failure-policy = { local = { instance = 2 } }"),
            5,
            "unknown field `instance`",
        ),
        (
            with_key("missing-key = { reject = 200 }"),
            5,
            "use a status of 4xx or 5xx",
        ),
        (
            with_key("missing-key = { reject = 99 }"),
            5,
            "99 is not a status of HTTP",
        ),
        (
            with_key("missing-key = 'reject'"),
            5,
            "expected `shared`, `skip` or `{ reject = 401 }`",
        ),
        (
            with_key("penalty = 'none'"),
            5,
            "expected `manual` or `{ after = 20",
        ),
        (
            with_key("penalty = { after = 0, within = '1 s' }"),
            5,
            "after 0 denials would block everybody",
        ),
        (
            with_key("penalty = { after = 1, within = '0 s' }"),
            5,
            "denials count within 1 ms to 366 days",
        ),
        (
            with_key("penalty = { after = 1, within = 's', block-for = '367 d' }"),
            5,
            "a block lasts 1 ms to 366",
        ),
        (
            with_key("penalty = { after = 1, within = 's', growing = { factor = 0, longest = 'd' } }"),
            5,
            "choose 2 or more",
        ),
        (
            with_key("penalty = { after = 1, within = 's', factor = 2 }"),
            5,
            "unknown field `factor`",
        ),
        (
            with_key("lease = { max-percent = 101 }"),
            5,
            "a lease takes 1 to 100 percent",
        ),
        (
            with_key("lease = { lifetime = '2 s' }"),
            5,
            "a lease lives from one millisecond to one second",
        ),
        (with_key("lease = { share = 5 }"), 5, "unknown field `share`"),
        (
            with_key("give-back-on = ['1xx']"),
            5,
            "`1xx` is no status that a response ends with",
        ),
        (with_key("give-back-on = [600]"), 5, "`600` is no status"),
        (
            with_key("skip-when = [{ path = '/' }]"),
            5,
            "unknown field `path`, expected one of `paths`",
        ),
        (
            with_key("skip-when = [{ paths = [] }]"),
            5,
            "an empty list says nothing",
        ),
        (
            with_key("skip-when = [{ peer-ip = ['10.0.0.0/33'] }]"),
            5,
            "`10.0.0.0/33` is not a network",
        ),
        (
            "[[rules]]\npaths = ['/x']".to_owned(),
            1,
            "missing field `policies`",
        ),
        (
            "[[rules]]\npaths = ['login']\npolicies = []".to_owned(),
            2,
            "`login` is no path of a rule",
        ),
        (
            "[[rules]]\nmethods = ['post']\npolicies = []".to_owned(),
            2,
            "`post` is not a method: write",
        ),
        (
            "[[rules]]\nhosts = ['a:80']\npolicies = []".to_owned(),
            2,
            "`a:80` is no host of a rule",
        ),
        (
            "[client-ip]\ntrusted-proxies = ['proxy']".to_owned(),
            2,
            "`proxy` is not a network",
        ),
        (
            "[client-ip]\nforwarded-header = 'x y'".to_owned(),
            2,
            "`x y` is not the name of a header",
        ),
        (
            "[headers]\nx-ratelimit = 'seconds'".to_owned(),
            2,
            "`delta`, `epoch`, `without-reset`, `off`",
        ),
        (
            "[headers]\nietf = 'v9'".to_owned(),
            2,
            "expected one of `v6`, `v7`, `v8`",
        ),
        (
            "deadline = '5 parsecs'".to_owned(),
            1,
            "`5 parsecs` is not a time: a unit of time is",
        ),
        (
            "deadline = '1 s 5 ms'".to_owned(),
            1,
            "there is something after its end",
        ),
        ("ipv6-prefix = 300".to_owned(), 1, "invalid value: integer `300`"),
        ("policy = []".to_owned(), 1, "unknown field `policy`"),
    ] {
        let error = misread(&text);
        assert!(error.contains(message), "{text}\n{error}");
        assert!(error.contains(&format!("at line {line},")), "{text}\n{error}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_by_place() {
    let policy = |rest: &str| format!("[[policies]]\n{POLICY}{rest}");
    let with_key = |rest: &str| policy(&format!("key = 'global'\n{rest}"));
    let rule = |rest: &str| format!("[[rules]]\n{rest}\n");
    let named = |name: &str| format!("policies = [{{ name = '{name}', quota = '1/s', key = 'global' }}]");
    for (text, place, message) in [
        (String::new(), "policies", "there is no policy"),
        (rule("policies = []"), "policies", "there is no policy"),
        (
            [with_key(""), with_key("")].concat(),
            "policies[1].name",
            "`a` is the name of policies[0] too",
        ),
        (
            [with_key(""), rule(&named("a"))].concat(),
            "rules[0].policies[0].name",
            "`a` is the name of policies[0] too",
        ),
        (
            [
                rule(&named("b")),
                rule(&format!("paths = ['/x']\n{}", named("b"))),
            ]
            .concat(),
            "rules[1].policies[0].name",
            "`b` is the name of rules[0].policies[0] too",
        ),
        (
            policy("key = 'client-ip'"),
            "policies[0].key",
            "needs a section `client-ip`",
        ),
        (
            policy("key = { any = ['bearer', ['global', 'client-ip']] }"),
            "policies[0].key",
            "needs a section `client-ip`",
        ),
        (
            policy("key = 'custom:x'"),
            "policies[0].key",
            "no extractor for `custom:x`",
        ),
        (
            policy("key = 'peer-ip'\nallow-keys = ['192.0.2.1']"),
            "policies[0].allow-keys",
            "use `skip-when`",
        ),
        (
            policy("key = { any = ['bearer', 'host'] }\nallow-keys = ['x']"),
            "policies[0].allow-keys",
            "use `skip-when`",
        ),
        (
            policy("key = 'bearer'\nallow-keys = ['x', '']"),
            "policies[0].allow-keys",
            "1 to 64 bytes",
        ),
        (
            policy(&format!("key = 'bearer'\nallow-keys = ['{}']", "x".repeat(65))),
            "policies[0].allow-keys",
            "1 to 64 bytes",
        ),
        (
            with_key("skip-when = [{}]"),
            "policies[0].skip-when[0]",
            "it says nothing",
        ),
        (
            with_key("skip-when = [{ client-ip = ['::1'] }]"),
            "policies[0].skip-when[0].client-ip",
            "needs a section `client-ip`",
        ),
        (
            with_key("cost = { rules = [{ paths = ['/a'], cost = 2 }, { methods = ['PUT'], cost = 3 }] }"),
            "policies[0].cost.rules",
            "add a rule for `PUT /a`",
        ),
        (
            with_key("cost = { rules = [{ cost = 2 }, { cost = 3 }] }"),
            "policies[0].cost.rules[1]",
            "two rules for the same requests",
        ),
        (
            format!("skip-when = [{{}}]\n{}", with_key("")),
            "skip-when[0]",
            "it says nothing",
        ),
        (
            [
                rule(&format!("paths = ['/a']\n{}", named("a"))),
                rule(&format!("methods = ['POST']\n{}", named("b"))),
            ]
            .concat(),
            "rules",
            "add a rule for `POST /a`",
        ),
        (
            [
                rule(&format!("paths = ['/a/{{id}}']\n{}", named("a"))),
                rule(&format!("paths = ['/b', '/a/{{name}}']\n{}", named("b"))),
            ]
            .concat(),
            "rules[1]",
            "two rules for the same requests",
        ),
        (
            rule("policies = [{ name = 'a', quota = '1/s', key = ['client-ip'] }]"),
            "rules[0].policies[0].key",
            "needs a section `client-ip`",
        ),
        (
            format!("{}[client-ip]", with_key("")),
            "client-ip",
            "by either `trusted-hops` or `trusted-proxies`",
        ),
        (
            format!(
                "{}[client-ip]\ntrusted-hops = 1\ntrusted-proxies = ['10.0.0.1']",
                with_key("")
            ),
            "client-ip",
            "by either `trusted-hops` or `trusted-proxies`",
        ),
        (
            format!("{}[client-ip]\ntrusted-hops = 0", with_key("")),
            "client-ip.trusted-hops",
            "trust 1 to 16 hops",
        ),
        (
            format!("{}[client-ip]\ntrusted-hops = 17", with_key("")),
            "client-ip.trusted-hops",
            "trust 1 to 16 hops",
        ),
        (
            format!("{}[client-ip]\ntrusted-proxies = ['0.0.0.0/0']", with_key("")),
            "client-ip.trusted-proxies",
            "`0.0.0.0/0` trusts everyone",
        ),
        (
            format!("ipv4-prefix = 33\n{}", with_key("")),
            "ipv4-prefix",
            "an address has 32 bits",
        ),
        (
            format!("ipv6-prefix = 129\n{}", with_key("")),
            "ipv6-prefix",
            "an address has 128 bits",
        ),
        (
            format!("deadline = '0 s'\n{}", with_key("")),
            "deadline",
            "1 ms to 1 hour",
        ),
        (
            format!("deadline = '61 minutes'\n{}", with_key("")),
            "deadline",
            "1 ms to 1 hour",
        ),
    ] {
        let error = refused(&text);
        assert_eq!(error.place(), place, "{text}\n{error}");
        assert!(error.to_string().contains(message), "{text}\n{error}");
        assert!(error.to_string().starts_with(&format!("{place}: ")), "{error}");
    }
}

#[test]
fn a_table_that_names_a_kind_has_nothing_beside_it() {
    for (setting, toml, json, extra) in [
        (
            "key",
            "{ hashed = 'peer-ip', zzz = 3 }",
            r#"{"hashed":"peer-ip","zzz":3}"#,
            "zzz",
        ),
        (
            "key",
            "{ any = ['bearer'], hashed = 'route' }",
            r#"{"any":["bearer"],"hashed":"route"}"#,
            "hashed",
        ),
        (
            "key",
            "[{ readable = 'host', zzz = 3 }]",
            r#"[{"readable":"host","zzz":3}]"#,
            "zzz",
        ),
        (
            "missing-key",
            "{ reject = 401, zzz = 1 }",
            r#"{"reject":401,"zzz":1}"#,
            "zzz",
        ),
        (
            "failure-policy",
            "{ local = { instances = 4 }, zzz = true }",
            r#"{"local":{"instances":4},"zzz":true}"#,
            "zzz",
        ),
        (
            "cost",
            "{ content-length = { bytes-per-unit = 1 }, rules = [{ paths = ['/a'], cost = 2 }] }",
            r#"{"content-length":{"bytes-per-unit":1},"rules":[{"paths":["/a"],"cost":2}]}"#,
            "rules",
        ),
        (
            "penalty",
            "{ after = 2, within = '1 s', zzz = 1 }",
            r#"{"after":2,"within":"1 s","zzz":1}"#,
            "zzz",
        ),
        (
            "skip-when",
            "[{ paths = ['/a'], zzz = 1 }]",
            r#"[{"paths":["/a"],"zzz":1}]"#,
            "zzz",
        ),
    ] {
        let (toml_key, json_key) = match setting {
            "key" => ("", String::new()),
            _ => ("key = 'global'\n", r#""key":"global","#.to_owned()),
        };
        let error = misread(&format!("[[policies]]\n{POLICY}{toml_key}{setting} = {toml}"));
        assert!(error.contains(&format!("`{extra}`")), "{toml}\n{error}");
        let text = format!(r#"{{"policies":[{{"name":"a","quota":"1/s",{json_key}"{setting}":{json}}}]}}"#);
        let error = serde_json::from_str::<LayerConfig>(&text)
            .expect_err(&text)
            .to_string();
        assert!(error.contains(&format!("`{extra}`")), "{json}\n{error}");
    }
}

#[test]
fn what_is_a_word_is_no_table() {
    for (section, setting, word) in [
        ("", "mode", "shadow"),
        ("[headers]\n", "x-ratelimit", "epoch"),
        ("[headers]\n", "ietf", "v8"),
    ] {
        for table in ["{}", "{}, zzz = 1", "{ zzz = 1 }"] {
            let line = format!("{setting} = {{ {word} = {table} }}");
            let error = misread(&format!("[[policies]]\n{POLICY}key = 'global'\n{section}{line}"));
            // The line is shown, with all of its keys.
            assert!(error.contains(&line), "{error}");
            assert!(error.contains("invalid type: map, expected a string"), "{error}");
        }
        for table in ["null", r#"null,"zzz":1"#] {
            let said = format!(r#""{setting}":{{"{word}":{table}}}"#);
            let (policy, headers) = match section {
                "" => (format!(",{said}"), String::new()),
                _ => (String::new(), said),
            };
            let text = format!(
                r#"{{"policies":[{{"name":"a","quota":"1/s","key":"global"{policy}}}],"headers":{{{headers}}}}}"#
            );
            let error = serde_json::from_str::<LayerConfig>(&text)
                .expect_err(&text)
                .to_string();
            assert!(error.contains("invalid type: map, expected a string"), "{error}");
        }
    }
    let text = r#"{"policies":[],"headers":{"x-ratelimit":"off","ietf":null}}"#;
    let read: LayerConfig = serde_json::from_str(text).expect("words, or nothing");
    assert_eq!(read.headers.ietf, None);
}
