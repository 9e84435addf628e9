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
