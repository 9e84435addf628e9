//! File names in multipart forms.

use files::parse_disposition_file_name;

#[test]
fn a_form_part_with_a_file_name_in_any_notation_is_a_file() {
    for (given, name) in [
        ("form-data; name=\"file\"; filename=\"a b.txt\"", Some("a b.txt")),
        ("form-data; name=file; filename=a.txt", Some("a.txt")),
        ("form-data;name=\"file\";filename=\"a.txt\"", Some("a.txt")),
        ("form-data; filename = \"a.txt\" ; name=\"file\"", Some("a.txt")),
        ("form-data; name=\"f\"; FileName=\"a.txt\"", Some("a.txt")),
        ("form-data; name=\"file\"; filename=\"日 é.txt\"", Some("日 é.txt")),
        ("form-data; name=\"file\"; filename=\"a; name=b.txt\"", Some("a; name=b.txt")),
        ("form-data; name=\"file\"; filename=\"a\\\"b\\\\c.txt\"", Some("a\"b\\c.txt")),
        ("form-data; name=\"file\"; filename=\"C:\\dir\\x.txt\"", Some("C:\\dir\\x.txt")),
        ("form-data; name=\"file\"; filename=\"50%20%22a%22.txt\"", Some("50%20\"a\".txt")),
        ("form-data; name=\"file\"; filename=\"never closed", Some("never closed")),
        ("form-data; name=\"file\"; filename=\"\"", Some("")),
        ("form-data; name=\"file\"; filename=", Some("")),
        // The encoded name alone, and preferred to the plain one wherever it is.
        ("form-data; name=\"file\"; filename*=UTF-8''%e6%97%a5.txt", Some("日.txt")),
        ("form-data; name=\"file\"; filename*=utf-8'en'%e6%97%a5%20x.txt", Some("日 x.txt")),
        ("form-data; name=\"file\"; filename=\"x.txt\"; filename*=UTF-8''%e6%97%a5.txt", Some("日.txt")),
        ("form-data; filename*=UTF-8''%e6%97%a5.txt; filename=\"x.txt\"", Some("日.txt")),
        ("form-data; filename*=\"UTF-8''%e6%97%a5.txt\"", Some("日.txt")),
        ("form-data; filename*=ISO-8859-1''%e9.txt", Some("é.txt")),
        // Unless it cannot be decoded.
        ("form-data; filename=\"x.txt\"; filename*=UTF-8''%ff", Some("x.txt")),
        ("form-data; filename=\"x.txt\"; filename*=nonsense", Some("x.txt")),
        ("form-data; name=\"file\"; filename*=KOI8-R''%c0", Some("")),
        // Not a file.
        ("form-data; name=\"filename\"", None),
        ("form-data; name=\"filename=x\"", None),
        ("form-data; name=\"a; filename=\\\"x\\\"\"", None),
        ("form-data; myfilename=\"x\"", None),
        ("form-data; filename", None),
        ("filename=x", None),
        ("form-data", None),
        ("", None),
    ] {
        assert_eq!(parse_disposition_file_name(given.as_bytes()).as_deref(), name, "{given}");
    }
    let latin = b"form-data; name=\"file\"; filename=\"\xe9.txt\"";
    assert_eq!(parse_disposition_file_name(latin).as_deref(), Some("\u{fffd}.txt"));
}
