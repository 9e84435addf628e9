//! Storage locations in the configuration.

use files::{CloudProvider, StorageLocation, StorageLocationError};

#[test]
fn a_storage_location_is_a_folder_or_a_bucket() {
    let bucket = |cloud, prefix: &str| StorageLocation::Bucket {
        provider: cloud,
        bucket: "my.bucket".to_owned(),
        prefix: prefix.to_owned(),
    };
    for (text, place) in [
        ("files", StorageLocation::Folder("files".into())),
        ("/srv/files", StorageLocation::Folder("/srv/files".into())),
        ("file:///srv/files", StorageLocation::Folder("/srv/files".into())),
        ("s3://my.bucket", bucket(CloudProvider::S3, "")),
        ("s3://my.bucket/", bucket(CloudProvider::S3, "")),
        ("gs://my.bucket/a/b", bucket(CloudProvider::Google, "a/b")),
        ("az://my.bucket/a/", bucket(CloudProvider::Azure, "a")),
    ] {
        assert_eq!(StorageLocation::parse(text), Ok(place), "{text}");
    }
}

#[test]
fn other_storage_locations_are_refused() {
    for (text, error) in [
        ("", StorageLocationError::Empty),
        ("ftp://x", StorageLocationError::UnknownScheme("ftp".to_owned())),
        ("file://host/x", StorageLocationError::UnknownScheme("file".to_owned())),
        ("s3://", StorageLocationError::InvalidBucket),
        ("s3:///x", StorageLocationError::InvalidBucket),
        ("s3://..", StorageLocationError::InvalidBucket),
        ("s3://user:key@bucket", StorageLocationError::InvalidBucket),
        ("s3://b/../x", StorageLocationError::InvalidPrefix),
        ("s3://b/a//x", StorageLocationError::InvalidPrefix),
        ("s3://b/?region=x", StorageLocationError::InvalidPrefix),
    ] {
        assert_eq!(StorageLocation::parse(text), Err(error), "{text}");
    }
}

#[test]
fn locations_overlap_if_one_is_in_the_other() {
    let overlaps = |one: &str, other: &str| {
        let (one, other) = (StorageLocation::parse(one).unwrap(), StorageLocation::parse(other).unwrap());
        assert_eq!(one.overlaps(&other), other.overlaps(&one));
        one.overlaps(&other)
    };
    for (one, other) in
        [("/a", "/a"), ("/a", "/a/b"), ("s3://b", "s3://b"), ("s3://b", "s3://b/p"), ("s3://b/p", "s3://b/p/q")]
    {
        assert!(overlaps(one, other), "{one} {other}");
    }
    for (one, other) in
        [("/a", "/ab"), ("/a/b", "/a/c"), ("s3://b/p", "s3://b/pq"), ("s3://b", "gs://b"), ("s3://b", "/b")]
    {
        assert!(!overlaps(one, other), "{one} {other}");
    }
}
