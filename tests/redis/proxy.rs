//! A network between client and server that fails as it is told.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// What the network does. Connections follow each change, but one that has lost bytes never works again: a
/// connection that did would have mixed up its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All that comes goes on.
    Pass,
    /// Commands reach the server that much later, and replies the client.
    Delay { commands: Duration, replies: Duration },
    /// Nothing goes on until the mode changes; then all of it does.
    Hold,
    /// Commands never reach the server.
    Blackhole,
    /// Commands reach the server, and replies never the client.
    Mute,
    /// Commands reach the server; connections end after so many bytes of what it replies from now on.
    CutReply { after: usize },
    /// The same for the first reply only; then all goes on again.
    CutNextReply { after: usize },
    /// Commands reach the server; the client gets this for a reply.
    Garbage(&'static [u8]),
}

impl Mode {
    /// Commands and replies share the delay.
    pub(crate) fn slow(by: Duration) -> Self {
        let (commands, replies) = (by / 2, by / 2);
        Self::Delay { commands, replies }
    }
}

/// Listens on a port of its own for clients of one server.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    server: Mutex<SocketAddr>,
    mode: watch::Sender<Mode>,
    /// Counts up; connections of before end.
    cut: watch::Sender<u64>,
    accepted: AtomicUsize,
    commands: Mutex<BTreeMap<String, usize>>,
}

impl Proxy {
    pub(crate) async fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let shared = Arc::new(Shared {
            server: Mutex::new((Ipv4Addr::LOCALHOST, port).into()),
            mode: watch::Sender::new(Mode::Pass),
            cut: watch::Sender::new(0),
            accepted: AtomicUsize::new(0),
            commands: Mutex::default(),
        });
        Self {
            address: listener.local_addr().expect("it is bound"),
            accepting: Some(tokio::spawn(accept(listener, Arc::clone(&shared)))),
            shared,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_modify(|generation| *generation += 1);
    }

    /// New connections lead to another server.
    pub(crate) fn lead_to(&self, port: u16) {
        lock(&self.shared.server).set_port(port);
    }

    /// Refuses new connections.
    pub(crate) async fn close(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // The listener is closed when its task has ended.
            let _ = accepting.await;
        }
    }

    /// Accepts connections again, on the same port.
    pub(crate) async fn open(&mut self) {
        self.close().await;
        let listener = TcpListener::bind(self.address).await.expect("our own port");
        self.accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How often clients have sent a command so far: `"EVALSHA"`.
    pub(crate) fn sent(&self, command: &str) -> usize {
        lock(&self.shared.commands)
            .get(command)
            .copied()
            .unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Whether a connection in this mode is to end.
    fn cuts(&self, mode: Mode) -> bool {
        let mine = |now: &mut Mode| *now == mode && std::mem::replace(now, Mode::Pass) == mode;
        match mode {
            Mode::CutReply { .. } => true,
            Mode::CutNextReply { .. } => self.mode.send_if_modified(mine),
            _ => false,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        // A task of its own, as connections outlive a closed port.
        tokio::spawn(connection(client, Arc::clone(&shared)));
    }
}

/// Both directions of a connection, until one end closes it or the network does.
async fn connection(client: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let server = *lock(&shared.server);
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    for stream in [&client, &server] {
        // Delays only what a test measures.
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (commands_go, commands_come) = mpsc::unbounded_channel();
    let (replies_go, replies_come) = mpsc::unbounded_channel();
    tokio::select! {
        () = direction(commands(from_client, commands_go, &shared), deliver(commands_come, to_server)) => {}
        () = direction(replies(from_server, replies_go, &shared), deliver(replies_come, to_client)) => {}
        _ = cut.changed() => {}
    }
}

/// What was on its way still arrives when the sender has gone.
async fn direction(read: impl Future<Output = ()>, deliver: impl Future<Output = ()>) {
    let mut deliver = pin!(deliver);
    tokio::select! {
        () = read => deliver.await,
        () = &mut deliver => {}
    }
}

/// Bytes, and when they arrive.
type Parcel = (Instant, Vec<u8>);

async fn deliver(mut parcels: mpsc::UnboundedReceiver<Parcel>, mut to: OwnedWriteHalf) {
    while let Some((at, bytes)) = parcels.recv().await {
        sleep_until(at).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn commands(mut from: OwnedReadHalf, to: mpsc::UnboundedSender<Parcel>, shared: &Shared) {
    let mut mode = shared.mode.subscribe();
    let mut counter = Counter::default();
    let mut lost = false;
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        counter.count(bytes, &mut lock(&shared.commands));
        let mode = passing(&mut mode).await;
        lost |= mode == Mode::Blackhole;
        let delay = match mode {
            Mode::Delay { commands, .. } => commands,
            _ => Duration::ZERO,
        };
        if !lost {
            // Fails when nobody delivers any more, which ends this.
            let _ = to.send((Instant::now() + delay, bytes.to_vec()));
        }
    }
}

async fn replies(mut from: OwnedReadHalf, to: mpsc::UnboundedSender<Parcel>, shared: &Shared) {
    let mut mode = shared.mode.subscribe();
    let mut lost = false;
    let mut forwarded = 0;
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        let mode = passing(&mut mode).await;
        lost |= matches!(mode, Mode::Blackhole | Mode::Mute);
        let (bytes, delay) = match mode {
            Mode::CutReply { after } | Mode::CutNextReply { after } => {
                if forwarded + length >= after && shared.cuts(mode) {
                    let _ = to.send((Instant::now(), bytes[..after.saturating_sub(forwarded)].to_vec()));
                    return;
                }
                forwarded += length;
                (bytes, Duration::ZERO)
            }
            Mode::Garbage(garbage) if !lost => {
                let _ = to.send((Instant::now(), garbage.to_vec()));
                lost = true;
                continue;
            }
            Mode::Delay { replies, .. } => (bytes, replies),
            _ => (bytes, Duration::ZERO),
        };
        if !lost {
            let _ = to.send((Instant::now() + delay, bytes.to_vec()));
        }
    }
}

/// The mode, once it is not [`Mode::Hold`].
async fn passing(mode: &mut watch::Receiver<Mode>) -> Mode {
    // Fails when the proxy has gone, and its connections with it.
    mode.wait_for(|mode| *mode != Mode::Hold)
        .await
        .map_or(Mode::Blackhole, |mode| *mode)
}

/// Finds the commands in what a client sends.
#[derive(Default)]
struct Counter {
    /// The beginning of a command.
    begun: Vec<u8>,
}

impl Counter {
    fn count(&mut self, bytes: &[u8], commands: &mut BTreeMap<String, usize>) {
        self.begun.extend_from_slice(bytes);
        while let Some((name, length)) = command(&self.begun) {
            *commands.entry(name).or_default() += 1;
            self.begun.drain(..length);
        }
    }
}

/// The name and length of the command at the beginning: `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`.
fn command(bytes: &[u8]) -> Option<(String, usize)> {
    let mut rest = bytes;
    let arguments = header(&mut rest, b'*')?;
    let mut name = None;
    for _ in 0..arguments {
        let length = header(&mut rest, b'$')?;
        let argument = rest.get(..length)?;
        rest = rest.get(length + 2..)?;
        name.get_or_insert_with(|| String::from_utf8_lossy(argument).to_uppercase());
    }
    Some((name?, bytes.len() - rest.len()))
}

fn header(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, after) = rest.split_at(end);
    assert_eq!(line.first(), Some(&kind), "clients send arrays of bulk strings");
    *rest = &after[2..];
    std::str::from_utf8(&line[1..]).ok()?.parse().ok()
}

/// A port that drops who wants to connect: nobody accepts, and the queue of those that wait is full.
pub(crate) struct FullPort {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullPort {
    pub(crate) async fn open() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let listener = socket.listen(1).expect("it listens");
        let address = listener.local_addr().expect("it is bound");
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            waiting.push(stream.expect("the queue has room"));
        }
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}
