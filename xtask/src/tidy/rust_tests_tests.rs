use super::*;

#[test]
fn a_test_is_found_under_every_test_attribute() {
    for source in [
        "#[test]\nfn t() {}",
        "#[tokio::test]\nasync fn t() {}",
        "#[tokio::test(flavor = \"multi_thread\", worker_threads = 2)]\n#[cfg(unix)]\npub(crate) async fn t() {}",
        "proptest! {\n    #![proptest_config(x)]\n    /// Law 1.\n    #[test]\n    fn t(log in logs()) { }\n}",
        "#[test]\n/// Says why.\n// and more\n#[should_panic(expected = \"a ] b\")]\nfn t() {}",
        "fn t() {}\nmod tests { #[test] fn t() {} }",
    ] {
        assert_eq!(find_rust_test(source, "t"), TestStatus::Runs, "{source}");
    }
}

#[test]
fn ignored_in_any_way_is_ignored() {
    for source in [
        "#[test]\n#[ignore]\nfn t() {}",
        "#[ignore = \"slow\"]\n#[test]\nfn t() {}",
        "#[tokio::test]\n#[cfg_attr(not(unix), ignore)]\nasync fn t() {}",
    ] {
        assert_eq!(find_rust_test(source, "t"), TestStatus::Ignored, "{source}");
    }
}

#[test]
fn comments_and_strings_are_not_tests() {
    for source in [
        "// #[test] fn t() {}",
        "/* #[test] /* nested */ fn t() {} */",
        "const S: &str = \"#[test] fn t() {} \\\" \";",
        "const S: &str = r#\"#[test] fn t() { \" } \"#;",
        "#[test]\nfn t_longer() {}",
        "#[test]\nfn not_t() {}",
        "",
    ] {
        assert_eq!(find_rust_test(source, "t"), TestStatus::Missing, "{source}");
    }
}

#[test]
fn a_function_without_the_attribute_is_not_a_test() {
    for source in [
        "fn t() {}",
        "#[test]\nfn other() {}\nfn t() {}",
        "#[doc = \"#[test]\"]\nfn t() {}",
        "#[cfg(test)]\nfn t() {}",
        "#[allow(test)]\nfn t() {}",
    ] {
        assert_eq!(find_rust_test(source, "t"), TestStatus::NotATest, "{source}");
    }
}

#[test]
fn quotes_of_lifetimes_and_characters_do_not_hide_the_rest() {
    let source = "fn a<'a>(x: &'a str) -> char { '\"' }\nfn b() -> char { '\\'' }\n#[test]\nfn t() {}\nfn c() -> &'static str { \"\" }";
    assert_eq!(find_rust_test(source, "t"), TestStatus::Runs);
}

#[test]
fn a_name_handed_to_a_macro_that_writes_tests_counts() {
    let suite =
        "macro_rules! suite { ($($name:ident),*) => { $( #[tokio::test] async fn $name() { law::$name().await } )* } }";
    assert_eq!(find_rust_test(&format!("{suite}\nsuite!(append_is_gap_free, t);"), "t"), TestStatus::Runs);
    assert_eq!(find_rust_test(&format!("{suite}\nother!(t);"), "t"), TestStatus::Missing);
    assert_eq!(find_rust_test(&format!("{suite}\nmy_suite!(t);"), "t"), TestStatus::Missing);
    let quiet = suite.replace("#[tokio::test]", "#[tokio::test] #[ignore]");
    assert_eq!(find_rust_test(&format!("{quiet}\nsuite!(t);"), "t"), TestStatus::Missing);
}
