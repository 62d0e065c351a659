//! Stack: what a page passes through, outermost first. One reason per layer; where each is decided is in the room named.
//!
//! 1. *Shell* (`serve`): header arrival fixes age and deadline once; expiry and a lost caller drop everything below.
//! 2. *Authentication* (`runtime`): identity before anything is spent on it.
//! 3. *Applied* ([`crate::applied`]): which mechanisms apply, from one policy snapshot, so that a page never mixes two.
//! 4. *Account* ([`crate::request`]): each page is counted once, however it ends.
//! 5. *Cancellation* ([`crate::serve_page`]): the page runs inside its caller's future, or as a task that outlives it.
//! 6. *Deadline* ([`crate::serve_page`]): outside the queue, since waiting spends it too.
//! 7. *Endpoint* ([`crate::slots`]): gate, then pool. Inside the deadline, so that nobody waits longer than it can use;
//!    outside all calls, so that no dependency sees work that was not admitted.
//! 8. *Pressure*: told by each admission, asked by each optional branch.
//! 9. *Profile* ([`crate::read_profile`]): coalescing outside its gate, since followers make no call and need no slot of
//!    the profile pool; gate, pool, call.
//! 10. *Claims* ([`crate::entitle`]): from the call, with the summary beside it ([`crate::shadow`]), or from the summary
//!     ([`crate::authority`]), as the phase of the migration says ([`crate::era`]); checked by each page for itself, behind
//!     the shared read, so that what was revoked while it waited is revoked for it.
//! 11. *Branches* ([`crate::serve_page`]): for each the budget rule, then the call with what remains less the reserve.

use std::sync::Arc;

use base::Clock;
use control::degradation::Hold;
use model::policy::Boundary;
use runtime::Host;
use stack::coalescing::Coalescer;
use summary::Marks;

use crate::{
    authority::{Authority, Keys},
    clients::Clients,
    metrics::HomeMetrics,
    migration::Migration,
    read_profile::ShadowFlights,
    serve_page::{Home, Pressures},
    shadow::Bench,
    slots::Slots,
};

/// What the process knows about summaries when it starts.
pub(crate) struct Known {
    /// `None` where it accepts no key at all.
    pub(crate) keys: Option<Keys>,
    pub(crate) marks: Marks,
    /// Whether marks are kept on the disk.
    pub(crate) persists: bool,
}

/// Builds the layers below the shell.
pub(crate) fn build(host: &Host, clients: Clients, known: Known) -> Home {
    let policy = host.policies.current();
    let clock: Arc<dyn Clock> = Arc::clone(&host.world.clock);
    let metrics = Arc::new(HomeMetrics::new(&host.registry, policy.dilation));
    let slots = |boundary| {
        let bounds = policy.admission(boundary);
        Arc::new(Slots::new(boundary, bounds, Arc::clone(&clock), Arc::clone(&metrics)))
    };
    let wall = &host.world.wall;
    let authority = Arc::new(Authority::new(known.keys, known.marks, Arc::clone(&clock), Arc::clone(wall)));
    let bench = Arc::new(Bench::new(
        host.policies.clone(),
        Arc::clone(&authority),
        Arc::clone(&metrics),
        Arc::clone(&host.world.tasks),
        Arc::clone(wall),
        host.world.ids.next_u128(),
    ));
    let migration = Arc::new(Migration::new(
        host.policies.clone(),
        Arc::clone(&authority),
        Arc::clone(&bench),
        Arc::clone(wall),
        known.persists,
        host.world.ids.next_u128(),
    ));
    Home {
        endpoint_slots: slots(Boundary::Endpoint),
        profile_slots: slots(Boundary::Profile),
        coalescer: Coalescer::new(host.world.clone()),
        shadow_flights: ShadowFlights::default(),
        pressures: Pressures::new(Hold::new(policy.degradation.bounds, clock.now())),
        clients,
        tasks: Arc::clone(&host.world.tasks),
        clock,
        metrics,
        authority,
        bench,
        migration,
    }
}
