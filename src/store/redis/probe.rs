//! Connects to a server and finds out whether it can serve.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::time::Instant;

use super::address::Address;
use super::class::Class;
use super::clock::ServerClock;
use super::link::answer;
use super::refusal::Refusal;
use super::settings::{LinkSettings, ProbeForm};

/// A server and how to use it.
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) settings: LinkSettings,
    /// `INFO` was refused: it is not asked for again, for each time fills the server's ACL log.
    info_refused: AtomicBool,
    eviction_reported: AtomicBool,
}

impl Target {
    pub(super) fn new(address: Address, settings: LinkSettings) -> Self {
        Self {
            address: address.with_database(settings.database),
            settings,
            info_refused: AtomicBool::new(false),
            eviction_reported: AtomicBool::new(false),
        }
    }

    /// Connects, logs in, asks for the time, loads the scripts and tries them. Whoever calls this bounds the time.
    pub(super) async fn connect(
        &self,
        disconnected: impl Fn() + Send + Sync + 'static,
    ) -> Result<(MultiplexedConnection, ServerClock), Refusal> {
        let mut connection = self
            .log_in(disconnected)
            .await
            .map_err(|error| self.at_login(error))?;
        if self.address.database() != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(self.address.database());
            ask(&mut connection, &select)
                .await
                .map_err(|error| self.at_select(error))?;
        }
        let clock = ServerClock::new();
        let sent = Instant::now();
        let time = ask(&mut connection, &redis::cmd("TIME"))
            .await
            .map_err(|error| self.at_call(error, None, None))?;
        let (seconds, micros): (u64, u64) =
            redis::from_redis_value(time).map_err(|error| self.at_call(error.into(), None, None))?;
        clock.observe(
            sent,
            Instant::now(),
            seconds.saturating_mul(1_000_000).saturating_add(micros),
        );
        self.try_scripts(&mut connection).await?;
        Ok((connection, clock))
    }

    async fn log_in(
        &self,
        disconnected: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = Client::open(self.address.connection_info(&self.settings))?;
        // Deadlines are the callers'.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        if self.address.is_resp3() {
            config = config.set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    disconnected();
                }
                Ok::<_, redis::aio::SendError>(())
            });
        }
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// One round trip, and one more for the texts of what is not cached.
    async fn try_scripts(&self, connection: &mut MultiplexedConnection) -> Result<(), Refusal> {
        let mut calls: Vec<Cmd> = self
            .settings
            .scripts
            .iter()
            .map(|text| script_load(text))
            .collect();
        let loads = calls.len();
        calls.extend((self.settings.probe)(ProbeForm::Hash));
        let probes = calls.len() - loads;
        let wants_info = !self.info_refused.load(Ordering::Relaxed);
        if wants_info {
            calls.push(redis::cmd("INFO"));
        }
        let mut replies = ask_all(connection, &calls)
            .await
            .map_err(|error| self.at_call(error, None, None))?;

        let info = if wants_info { replies.pop() } else { None };
        let info = info.and_then(|info| self.read_info(info));
        let info = info.as_deref();
        let hashed = replies.split_off(loads);
        // A refused load does not matter where the text may be sent instead.
        let load_error = replies.into_iter().find_map(|reply| answer(Ok(reply)).err());

        let mut texts = None;
        for (index, reply) in hashed.into_iter().enumerate() {
            let mut reply = answer(Ok(reply));
            if reply
                .as_ref()
                .is_err_and(|error| Class::of(error) == Class::NoScript)
            {
                let texts = texts.get_or_insert_with(|| (self.settings.probe)(ProbeForm::Text));
                debug_assert_eq!(texts.len(), probes, "both forms of the probe are the same calls");
                if let Some(text) = texts.get(index) {
                    reply = ask(connection, text).await;
                }
            }
            match reply {
                Ok(_) => {}
                Err(error) if matches!(Class::of(&error), Class::OutOfMemory | Class::WritesRefused) => {
                    tracing::warn!(server = %self.address, %error, "redis refuses writes");
                }
                Err(error) => return Err(self.at_call(error, load_error.as_ref(), info)),
            }
        }
        self.check_info(info.unwrap_or_default())
    }

    fn read_info(&self, info: Value) -> Option<String> {
        match answer(Ok(info)) {
            Ok(info) => redis::from_redis_value(info).ok(),
            Err(_) => {
                self.info_refused.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn check_info(&self, info: &str) -> Result<(), Refusal> {
        if field(info, "cluster_enabled") == Some("1") {
            return Err(self.is_cluster(None));
        }
        if field(info, "role") == Some("slave") {
            return Err(self.is_replica(Class::ReadOnly, Some(info), None));
        }
        let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
        let is_limited = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
        if is_limited && policy != "noeviction" && !self.eviction_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %self.address, policy,
                "redis evicts keys when its memory is full, and what it evicts has its whole limit again: set \
                 maxmemory-policy to noeviction, or use a server of its own"
            );
        }
        Ok(())
    }
}

async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    answer(connection.send_packed_command(command).await)
}

async fn ask_all(connection: &mut MultiplexedConnection, commands: &[Cmd]) -> Result<Vec<Value>, RedisError> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    connection
        .send_packed_commands(&pipeline, 0, commands.len())
        .await
}

fn script_load(text: &str) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(text);
    command
}

/// A line `name:value` of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests;
