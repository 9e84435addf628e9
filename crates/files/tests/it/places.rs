//! What an operator may write.

use files::{Cloud, Place, PlaceError};

#[test]
fn a_place_is_a_folder_or_a_bucket() {
    let bucket =
        |cloud, prefix: &str| Place::Bucket { cloud, bucket: "my.bucket".to_owned(), prefix: prefix.to_owned() };
    for (text, place) in [
        ("files", Place::Folder("files".into())),
        ("/srv/files", Place::Folder("/srv/files".into())),
        ("file:///srv/files", Place::Folder("/srv/files".into())),
        ("s3://my.bucket", bucket(Cloud::S3, "")),
        ("s3://my.bucket/", bucket(Cloud::S3, "")),
        ("gs://my.bucket/a/b", bucket(Cloud::Google, "a/b")),
        ("az://my.bucket/a/", bucket(Cloud::Azure, "a")),
    ] {
        assert_eq!(Place::parse(text), Ok(place), "{text}");
    }
}

#[test]
fn what_is_neither_is_refused() {
    for (text, error) in [
        ("", PlaceError::Empty),
        ("ftp://x", PlaceError::Scheme("ftp".to_owned())),
        ("file://host/x", PlaceError::Scheme("file".to_owned())),
        ("s3://", PlaceError::Bucket),
        ("s3:///x", PlaceError::Bucket),
        ("s3://..", PlaceError::Bucket),
        ("s3://user:key@bucket", PlaceError::Bucket),
        ("s3://b/../x", PlaceError::Prefix),
        ("s3://b/a//x", PlaceError::Prefix),
        ("s3://b/?region=x", PlaceError::Prefix),
    ] {
        assert_eq!(Place::parse(text), Err(error), "{text}");
    }
}
