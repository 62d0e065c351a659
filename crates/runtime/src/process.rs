//! Process: the start and the end of one service process, the same for all of them and for the emulator.

use std::{future::Future, sync::Arc};

use crate::{
    authenticate, bounds,
    host::{Host, StartError},
    limits,
    policy::Policies,
};
use base::{Nanos, World, inject::Points};
use model::policy::Policy;
use serve::{
    InForce, Limits, Routes, admin,
    exchange::Port,
    health::{self, Readiness},
    lifecycle::{Lifecycle, Stage},
    listener::Listener,
    metrics::{Registry, ServerMetrics},
    reflection,
    shell::{DrainReport, Shell},
    supervisor::Supervisor,
    telemetry::Tracer,
};

/// A process with its ports. Made first, so that services can be built on its registry and supervisor.
pub struct Process {
    /// Clocks, ids and the supervisor of the process.
    pub world: World,
    /// Its metrics.
    pub registry: Registry,
    /// What health and readiness answer.
    pub readiness: Readiness,
    tracer: Tracer,
    policies: Option<Policies>,
    shell: Shell,
    /// Outlives the drain, so that readiness and metrics can be read until the end.
    admin: Shell,
}

impl Process {
    /// A process without ports. `world` comes without its supervisor, which is made here.
    pub fn new(name: &'static str, world: impl FnOnce(Arc<Supervisor>) -> World) -> Self {
        let supervisor = Supervisor::new();
        let world = world(Arc::new(supervisor.clone()));
        let registry = Registry::new(name);
        registry.watch_tasks(&supervisor);
        registry.watch_points(&world.points);
        let readiness = Readiness::new();
        let shell = |supervisor| {
            let (lifecycle, clock) = (Lifecycle::new(Arc::clone(&world.clock)), Arc::clone(&world.clock));
            Shell::new(lifecycle, supervisor, readiness.clone(), clock)
        };
        let (shell, admin) = (shell(supervisor).inject(world.points.clone()), shell(Supervisor::new()));
        registry.watch_lifecycle(&shell.lifecycle);
        Self { world, registry, readiness, tracer: Tracer::off(), policies: None, shell, admin }
    }

    /// Records the spans of ports that are opened from now on.
    pub fn trace(&mut self, tracer: Tracer) {
        self.tracer = tracer;
    }

    /// Opens a port: the routes, with health and reflection beside them. `server` labels its series.
    ///
    /// # Errors
    /// When the suite's descriptors do not declare one of the services, which is a fault of the build.
    pub fn open<L: Listener>(
        &mut self,
        server: &'static str,
        listener: L,
        routes: Routes,
        limits: impl Into<InForce>,
    ) -> Result<(), StartError> {
        let served = routes.names();
        let index = reflection::Index::of(served.iter().copied())
            .map_err(|error| StartError::Failed(format!("{server}: {error}")))?;
        let (v1, v1alpha) = reflection::services(Arc::new(index), &self.readiness);
        let health = health::service(&self.readiness, served);
        let routes = routes.grpc_long_lived(health).grpc_long_lived(v1).grpc_long_lived(v1alpha);
        let port = Port {
            routes,
            limits: limits.into(),
            clock: Arc::clone(&self.world.clock),
            ids: Arc::clone(&self.world.ids),
            lifecycle: self.shell.lifecycle.clone(),
            metrics: ServerMetrics::new(&self.registry, server),
            tracer: self.tracer.clone(),
            points: self.world.points.clone(),
        };
        self.shell.open(listener, port);
        Ok(())
    }

    /// Opens the main port of a service: bounds by its policy, also when that changes, and every call behind the
    /// authenticator. To be called after everything else that goes by the policy was made: the port follows last, so that
    /// what a request meets goes by the request's own policy or a later one.
    ///
    /// # Errors
    /// As [`Process::open`].
    pub fn open_service<L: Listener>(
        &mut self,
        host: &Host,
        listener: L,
        routes: Routes,
    ) -> Result<(), StartError> {
        let gate = authenticate::gate(Arc::clone(&host.authenticator), Arc::clone(&host.world.ids));
        let service = host.service;
        let in_force = InForce::from(limits::limits(&host.policies.current(), service));
        bounds::publish(&self.registry, &host.policies.current(), service);
        let (follows, registry) = (in_force.clone(), self.registry.clone());
        host.policies.add(move |next: &Arc<Policy>| {
            bounds::publish(&registry, next, service);
            follows.replace(limits::limits(next, service));
        });
        self.policies = Some(host.policies.clone());
        self.open(service.as_str(), listener, routes.gate(&gate), in_force)
    }

    /// Opens the admin port, with `extra` beside `/livez`, `/readyz`, `/metrics` and `/lifecycle`.
    pub fn open_admin<L: Listener>(&mut self, listener: L, extra: axum::Router) {
        let extra = extra.merge(admin::lifecycle(&self.shell.lifecycle, &self.shell.supervisor));
        let port = Port {
            routes: Routes::new().http(admin::router(&self.readiness, &self.registry, extra)),
            limits: Limits::default().into(),
            clock: Arc::clone(&self.world.clock),
            ids: Arc::clone(&self.world.ids),
            lifecycle: self.admin.lifecycle.clone(),
            metrics: ServerMetrics::new(&self.registry, "admin"),
            // Scrapes and probes are no requests of a customer; they leave no spans.
            tracer: Tracer::off(),
            points: Points::default(),
        };
        self.admin.open(listener, port);
    }

    /// Declares readiness, serves until `stop`, and drains within `drain`, which is asked for when `stop` has come; `hasten`
    /// ends the drain at once. From `stop` on no policy is taken over.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        hasten: impl Future<Output = ()>,
        drain: impl FnOnce() -> Nanos,
    ) -> DrainReport {
        let Self { shell, admin, policies, .. } = self;
        let stop = async {
            stop.await;
            if let Some(policies) = policies {
                policies.close();
            }
        };
        let report = shell.run(stop, hasten, drain).await;
        admin.lifecycle.advance(Stage::Terminating); // Closes the listener,
        admin.lifecycle.cut(); // and what it had accepted.
        report
    }
}
