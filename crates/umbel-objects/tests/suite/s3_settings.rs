//! Settings and credentials of S3 buckets, against servers that the tests write.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use umbel_env::{Creation, Env, ObjectError, ObjectErrorKind, ObjectName, Objects};
use umbel_objects::{Variables, open_with};

use super::stand_in::{StandIn, answer, spawn, tunnel_to};

const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "ID"), ("AWS_SECRET_ACCESS_KEY", "secret")];

fn open(url: &str, variables: &[(&str, &str)]) -> Arc<dyn Objects> {
    let variables = Variables::new(variables.iter().copied());
    open_with(&Env::system(), url, &variables).unwrap_or_else(|error| panic!("{error}"))
}

fn open_error(url: &str, variables: &[(&str, &str)]) -> String {
    let variables = Variables::new(variables.iter().copied());
    open_with(&Env::system(), url, &variables).expect_err("refused").to_string()
}

fn create(store: &dyn Objects) -> Result<Creation, ObjectError> {
    store.create(&ObjectName::new("a").unwrap(), b"x").map(|done| done.value)
}

/// An S3 store that accepts each request.
fn accepting() -> Arc<StandIn> {
    StandIn::start(|_| answer("200 OK", "ETag: \"x\"\r\n", ""))
}

fn scope(server: &StandIn) -> String {
    let head = server.requests().pop().expect("a request").head;
    let (_, scope) = head.split_once("credential=").expect("a signature");
    scope.split(',').next().unwrap_or_default().to_owned()
}

#[test]
fn encryption_by_the_store_is_asked_for() {
    let server = accepting();
    let endpoint = server.endpoint();
    let variables = [&KEY[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat();
    for (url, headers) in [
        ("s3://b?sse=AES256", &["x-amz-server-side-encryption: aes256"][..]),
        (
            "s3://b?sse=aws:kms&sse-kms-key-id=k-1&sse-bucket-key=true",
            &[
                "x-amz-server-side-encryption: aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id: k-1",
                "x-amz-server-side-encryption-bucket-key-enabled: true",
            ],
        ),
    ] {
        assert_eq!(create(&*open(url, &variables)), Ok(Creation::Created));
        let head = server.requests().pop().expect("a request").head;
        for header in headers {
            assert!(head.contains(header), "{header}: {head}");
        }
    }
    assert!(open_error("s3://b?sse=rot13", &variables).contains("the kinds are AES256, aws:kms"));
}

/// The profile has the key, the region and the endpoint. Another program renews the key.
#[test]
fn profile_files_are_used_and_read_again() {
    let server = accepting();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".aws")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(".aws").join(name), text);
    let config = format!(
        "[profile backup]\nregion = eu-west-1\nendpoint_url = {}\n[default]\nregion = x\n\
         [profile other]\ncredential_process = /bin/x\n",
        server.endpoint()
    );
    write("config", &config).unwrap();
    let keys = |id: &str| format!("[backup]\naws_access_key_id={id}\naws_secret_access_key=s\n");
    write("credentials", &keys("first")).unwrap();
    let home = [("HOME", folder.path().to_str().unwrap())];
    let store = open("s3://b?profile=backup", &[&home[..], &KEY].concat());
    assert_eq!(create(&*store), Ok(Creation::Created));
    assert!(scope(&server).starts_with("first/"), "{}", scope(&server));
    assert!(scope(&server).ends_with("/eu-west-1/s3/aws4_request"), "{}", scope(&server));
    write("credentials", &keys("second")).unwrap();
    assert_eq!(create(&*store), Ok(Creation::Created));
    assert!(scope(&server).starts_with("second/"), "{}", scope(&server));
    // The file is being replaced.
    write("credentials", "").unwrap();
    assert_eq!(create(&*store), Ok(Creation::Created));
    assert!(scope(&server).starts_with("second/"), "{}", scope(&server));
    let error = open_error("s3://b?profile=other", &home);
    assert!(
        error.contains("credential_process") && error.contains("export-credentials"),
        "{error}"
    );
    let error = open_error("s3://b?profile=none", &home);
    assert!(error.contains("\"none\"") && error.contains(".aws/config"), "{error}");
}

#[test]
fn web_identity_gets_temporary_credentials() {
    const ASSUMED: &str = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>\
        <Credentials><SessionToken>session</SessionToken><SecretAccessKey>s</SecretAccessKey>\
        <AccessKeyId>assumed</AccessKeyId><Expiration>2999-01-01T00:00:00Z</Expiration>\
        </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "web-token").unwrap();
    let server = StandIn::start(|request| match request.head.contains("action=assumerole") {
        true => answer("200 OK", "", ASSUMED),
        false => answer("200 OK", "ETag: \"x\"\r\n", ""),
    });
    let endpoint = server.endpoint();
    let variables = [
        ("AWS_ENDPOINT_URL_S3", endpoint.as_str()),
        ("AWS_ENDPOINT_URL_STS", &endpoint),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
    ];
    let store = open("s3://b", &variables);
    assert_eq!(create(&*store), Ok(Creation::Created));
    assert_eq!(create(&*store), Ok(Creation::Created));
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "one for the credentials: {requests:?}");
    assert!(requests[0].head.contains("webidentitytoken=web-token"), "{requests:?}");
    assert!(scope(&server).starts_with("assumed/"), "{}", scope(&server));
    assert!(requests[2].head.contains("x-amz-security-token: session"), "{requests:?}");
    fs::remove_file(&token).unwrap();
    let error = create(&*open("s3://b", &variables)).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Denied);
    assert!(error.cause.contains("the role arn:aws:iam::1:role/r"), "{error}");
}

#[test]
fn metadata_of_the_instance_has_credentials() {
    const ROLE: &str = r#"{"AccessKeyId":"instance","SecretAccessKey":"s","Token":"t",
        "Expiration":"2999-01-01T00:00:00Z"}"#;
    let metadata = StandIn::start(|request| {
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        match path.trim_start_matches("/latest/") {
            "api/token" => answer("200 OK", "", "metadata-token"),
            "meta-data/iam/security-credentials/" => answer("200 OK", "", "role"),
            "meta-data/iam/security-credentials/role" => answer("200 OK", "", ROLE),
            _ => answer("404 Not Found", "", ""),
        }
    });
    let server = accepting();
    let (endpoint, place) = (server.endpoint(), metadata.endpoint());
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", place.as_str()),
    ];
    assert_eq!(create(&*open("s3://b", &variables)), Ok(Creation::Created));
    assert!(scope(&server).starts_with("instance/"), "{}", scope(&server));
    assert!(metadata.requests()[1].head.contains("metadata-token"));
}

/// Without credentials each call fails, and names the places that were looked at. Status 404 of the
/// metadata service is not that of an object.
#[test]
fn missing_credentials_name_the_places() {
    let metadata = StandIn::start(|_| answer("404 Not Found", "", ""));
    let server = accepting();
    let (endpoint, place) = (server.endpoint(), metadata.endpoint());
    let variables = [
        ("HOME", "/nonexistent"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", place.as_str()),
    ];
    let store = open("s3://b", &variables);
    let name = ObjectName::new("a").unwrap();
    let read = store.read(&name, 0..9).map(|_| ()).unwrap_err();
    for error in [create(&*store).unwrap_err(), read, store.delete(&name).unwrap_err()] {
        assert_eq!(error.kind, ObjectErrorKind::Denied);
        for place in
            ["AWS_ACCESS_KEY_ID", "/nonexistent/.aws/config", "AWS_WEB_IDENTITY_TOKEN_FILE", &place]
        {
            assert!(error.cause.contains(place), "{place}: {error}");
        }
    }
    assert!(server.requests().is_empty());
    let off = [&variables[..], &[("AWS_EC2_METADATA_DISABLED", "true")]].concat();
    let error = open_error("s3://b", &off);
    assert!(error.contains("AWS_ACCESS_KEY_ID") && error.contains("switches"), "{error}");
}

/// A proxy sees requests without TLS as a whole, and a bucket can be a part of the host's name.
#[test]
fn requests_without_tls_go_to_the_proxy() {
    let proxy = accepting();
    let own = proxy.endpoint().replace("http://", "http://user:word@");
    let variables = [&KEY[..], &[("HTTP_PROXY", own.as_str())]].concat();
    let store = open("s3://b/p?endpoint=http://store.test:9000", &variables);
    assert_eq!(create(&*store), Ok(Creation::Created));
    let head = proxy.requests().pop().unwrap().head;
    assert!(head.starts_with("put http://store.test:9000/b/p/a http/1.1"), "{head}");
    assert!(head.contains("proxy-authorization: basic "), "{head}");
    let url = "s3://b/p?endpoint=http://store.test:9000&virtual-host=true";
    assert_eq!(create(&*open(url, &variables)), Ok(Creation::Created));
    let head = proxy.requests().pop().unwrap().head;
    assert!(head.starts_with("put http://b.store.test:9000/p/a http/1.1"), "{head}");
    let excluded = [&variables[..], &[("NO_PROXY", "127.0.0.1")]].concat();
    let server = accepting();
    let url = format!("s3://b?endpoint={}", server.endpoint());
    assert_eq!(create(&*open(&url, &excluded)), Ok(Creation::Created));
    assert_eq!((server.requests().len(), proxy.requests().len()), (1, 2));
    let error = open_error("s3://b", &[("HTTPS_PROXY", "socks5://p:1")]);
    assert!(error.contains("HTTPS_PROXY") && error.contains("http://"), "{error}");
}

/// A server with TLS, whose certificate its own authority signed, and the file of the authority.
fn server_with_tls(folder: &tempfile::TempDir) -> (std::net::SocketAddr, PathBuf) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_file = folder.path().join("ca.pem");
    fs::write(&authority_file, authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["store.test".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let chain = vec![CertificateDer::from(own.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = accepting();
    let config = Arc::new(config);
    spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            server.serve(&mut stream, &|_| answer("200 OK", "ETag: \"x\"\r\n", ""));
            stream.conn.send_close_notify();
            let _ = stream.conn.complete_io(&mut stream.sock);
        }
    });
    (address, authority_file)
}

#[test]
fn tls_goes_through_a_tunnel_and_needs_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (address, authority) = server_with_tls(&folder);
    let (proxy, lines) = tunnel_to(address);
    let endpoint = format!("https://store.test:{}", address.port());
    let variables =
        [&KEY[..], &[("AWS_ENDPOINT_URL", endpoint.as_str()), ("HTTPS_PROXY", proxy.as_str())]]
            .concat();
    let url = format!("s3://b?ca-file={}", authority.display());
    assert_eq!(create(&*open(&url, &variables)), Ok(Creation::Created));
    let line = lines.lock().unwrap()[0].clone();
    assert!(line.starts_with(&format!("connect store.test:{} ", address.port())), "{line}");
    let bundle = authority.to_str().unwrap();
    let with_bundle = [&variables[..], &[("AWS_CA_BUNDLE", bundle)]].concat();
    assert_eq!(create(&*open("s3://b", &with_bundle)), Ok(Creation::Created));
    // The system does not trust the authority. The request was not sent.
    let error = create(&*open("s3://b", &variables)).unwrap_err();
    assert!(error.cause.contains("UnknownIssuer"), "{error}");
    let error = open_error("s3://b?ca-file=/nonexistent.pem", &variables);
    assert!(error.contains("/nonexistent.pem"), "{error}");
    fs::write(&authority, "no certificate").unwrap();
    let error = open_error(&url, &variables);
    assert!(error.contains("has no certificate of an authority"), "{error}");
}

#[test]
fn refusal_of_a_proxy_is_named() {
    let proxy = StandIn::start(|_| answer("407 Proxy Authentication Required", "", ""));
    let endpoint = proxy.endpoint();
    let variables = [&KEY[..], &[("HTTPS_PROXY", endpoint.as_str())]].concat();
    let error = create(&*open("s3://b", &variables)).unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(error.cause.contains(&format!("through the proxy {endpoint}")), "{error}");
    assert!(error.cause.contains("proxy authorization required"), "{error}");
}

#[test]
fn wrong_settings_are_refused() {
    for (url, variable, reason) in [
        ("s3://b?endpoint=127.0.0.1:9000", ("A", "b"), "is no URL of a store"),
        ("s3://b?endpoint=ftp://h", ("A", "b"), "neither http:// nor https://"),
        ("s3://b?endpoint=http://i:hidden@h", ("A", "b"), "the endpoint has credentials"),
        ("s3://b?virtual-host=maybe", ("A", "b"), "write true or false"),
        ("s3://b", ("AWS_SECRET_ACCESS_KEY", ""), "Missing"),
    ] {
        let mut variables = vec![KEY[0], KEY[1], variable];
        if variable.1.is_empty() {
            variables.remove(1);
        }
        let error = open_error(url, &variables);
        assert!(error.contains(reason) && !error.contains("hidden"), "{url}: {error}");
    }
}
