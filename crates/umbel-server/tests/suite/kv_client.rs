//! Client of the key-value service.

use futures_util::Stream;
use tonic::{Request, Status, Streaming};
use umbel_proto::kv::*;

use umbel_testing::server_connection::Connection;

/// Client for one keyspace, `default` unless set.
#[derive(Clone)]
pub struct Kv {
    pub client: Connection,
    keyspace: String,
}

pub fn put_of(keyspace: &str, key: &str, value: &str) -> Operation {
    let entry = Entry { key: key.to_string().into(), value: value.to_string().into() };
    Operation { keyspace: keyspace.to_string(), kind: Some(OperationKind::Put(entry)) }
}

pub fn delete_of(keyspace: &str, key: &str) -> Operation {
    let kind = OperationKind::Delete(key.to_string().into());
    Operation { keyspace: keyspace.to_string(), kind: Some(kind) }
}

pub fn delete_range_of(keyspace: &str, start: &str, end: &str) -> Operation {
    let (start, end) = (start.to_string().into(), end.to_string().into());
    let kind = OperationKind::DeleteRange(KeyRange { start, end });
    Operation { keyspace: keyspace.to_string(), kind: Some(kind) }
}

pub fn condition(key: &str, value: Option<&str>) -> Condition {
    let value = value.map(|value| value.as_bytes().to_vec());
    Condition { keyspace: String::new(), key: key.as_bytes().to_vec(), value }
}

impl Kv {
    pub fn new(client: &Connection) -> Kv {
        Kv { client: client.clone(), keyspace: String::new() }
    }

    pub fn of(&self, keyspace: &str) -> Kv {
        Kv { keyspace: keyspace.to_string(), ..self.clone() }
    }

    pub async fn call<Q, A>(&self, method: &str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.client.unary(SERVICE, method, question).await
    }

    pub async fn create(&self, name: &str) -> Result<bool, Status> {
        let request = CreateKeyspaceRequest { name: name.to_string() };
        let answer: CreateKeyspaceResponse = self.call("CreateKeyspace", request).await?;
        Ok(answer.created)
    }

    pub async fn drop(&self, name: &str) -> Result<bool, Status> {
        let request = DropKeyspaceRequest { name: name.to_string() };
        let answer: DropKeyspaceResponse = self.call("DropKeyspace", request).await?;
        Ok(answer.dropped)
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        let request = GetRequest { keyspace: self.keyspace.clone(), key: key.to_vec() };
        let answer: GetResponse = self.call("Get", request).await?;
        Ok(answer.value.map(Vec::from))
    }

    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<u64, Status> {
        let (key, value) = (key.to_vec(), value.to_vec());
        let request = PutRequest { keyspace: self.keyspace.clone(), key, value, sync: false };
        let answer: PutResponse = self.call("Put", request).await?;
        Ok(answer.sequence)
    }

    pub async fn delete(&self, key: &[u8]) -> Result<u64, Status> {
        let key = key.to_vec();
        let request = DeleteRequest { keyspace: self.keyspace.clone(), key, sync: false };
        let answer: DeleteResponse = self.call("Delete", request).await?;
        Ok(answer.sequence)
    }

    pub async fn batch(
        &self,
        operations: Vec<Operation>,
        conditions: Vec<Condition>,
    ) -> Result<u64, Status> {
        let request = BatchRequest { operations, conditions, sync: false };
        let answer: BatchResponse = self.call("Batch", request).await?;
        Ok(answer.sequence)
    }

    pub async fn begin_scan(&self, scan: ScanRequest) -> Result<Streaming<ScanResponse>, Status> {
        let scan = ScanRequest { keyspace: self.keyspace.clone(), ..scan };
        let requests = futures_util::stream::iter([scan]);
        self.client.streaming(SERVICE, "Scan", requests).await
    }

    /// Runs a whole scan; returns its entries and the sequence number of its snapshot.
    pub async fn scan(&self, scan: ScanRequest) -> Result<(u64, Vec<(String, String)>), Status> {
        let mut answers = self.begin_scan(scan).await?;
        let (mut sequence, mut entries) = (None, Vec::new());
        while let Some(answer) = answers.message().await? {
            assert_eq!(*sequence.get_or_insert(answer.sequence), answer.sequence, "one state");
            entries.extend(answer.entries.iter().map(shown));
        }
        Ok((sequence.expect("a message at least"), entries))
    }

    /// Keys of a scan.
    pub async fn keys(&self, scan: ScanRequest) -> Vec<String> {
        let (_, entries) = self.scan(scan).await.unwrap();
        entries.into_iter().map(|(key, _)| key).collect()
    }

    pub async fn watch(&self, watch: WatchRequest) -> Result<Streaming<WatchResponse>, Status> {
        let watch = WatchRequest { keyspace: self.keyspace.clone(), ..watch };
        self.begin(self.client.request(futures_util::stream::iter([watch]))).await
    }

    /// Starts a watch from a complete request, including its headers.
    pub async fn begin<S>(&self, request: Request<S>) -> Result<Streaming<WatchResponse>, Status>
    where
        S: Stream<Item = WatchRequest> + Send + 'static,
    {
        self.client.streaming_of(SERVICE, "Watch", request).await
    }
}

pub fn shown(entry: &Entry) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&entry.key), text(&entry.value))
}

/// Returns the next event of a watch.
pub async fn event(answers: &mut Streaming<WatchResponse>) -> Result<WatchEvent, Status> {
    let answer = answers.message().await?.expect("a watch does not end by itself");
    Ok(answer.event.expect("an event"))
}

/// Returns the next event of a watch, which must be a write.
pub async fn changes(answers: &mut Streaming<WatchResponse>) -> Changes {
    match event(answers).await.unwrap() {
        WatchEvent::Changes(changes) => changes,
        other => panic!("no change: {other:?}"),
    }
}
