//! Service: the gRPC edge of inventory. Protobuf stops here.

use std::sync::Arc;

use base::{Phase, Refusal, WallClock};
use model::policy::ServiceName;
use runtime::host::Channel;
use tonic::{Request, Response, Status};
use wire::{
    emulator::v1::{self as facts, FetchStockRequest, stock_service_client::StockServiceClient},
    inventory::v1::{
        GetAvailabilityRequest, GetAvailabilityResponse, ItemAvailability, StockStatus,
        inventory_service_server::InventoryService,
    },
};

use crate::decide::{self, Availability, Items, Reservation, StockRecord};

pub(crate) struct Service {
    stock: StockServiceClient<Channel>,
    wall: Arc<dyn WallClock>,
}

impl Service {
    pub(crate) fn new(stock: Channel, wall: Arc<dyn WallClock>) -> Self {
        Self { stock: StockServiceClient::new(stock), wall }
    }

    async fn resolve(
        &self,
        request: Request<GetAvailabilityRequest>,
    ) -> Result<GetAvailabilityResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Inventory).reserve;
        let items = Items::new(request.into_inner().item_ids)?;
        let question = FetchStockRequest {
            item_ids: items.as_slice().to_vec(),
            region: context.identity.region.as_str().to_owned(),
        };
        progress.enter(Phase::Upstream);
        let answer = self.stock.clone().fetch_stock(runtime::outbound(&context, reserve, question)).await;
        let records =
            answer.map_err(|status| runtime::upstream_error(Phase::Upstream, &status))?.into_inner().records;
        progress.enter(Phase::Handler);
        let records = records.into_iter().map(record).collect();
        let answer = decide::availability(items, records, self.wall.unix_ms())?;
        Ok(GetAvailabilityResponse {
            items: answer.items.into_iter().map(item).collect(),
            as_of_unix_ms: answer.as_of_unix_ms,
        })
    }
}

fn record(record: facts::StockRecord) -> StockRecord {
    let reservations = record.reservations.into_iter();
    StockRecord {
        item_id: record.item_id,
        on_hand_units: record.on_hand_units,
        reservations: reservations
            .map(|reservation| Reservation {
                units: reservation.units,
                expires_in_ms: reservation.expires_in_ms,
            })
            .collect(),
        count_age_ms: record.count_age_ms,
    }
}

fn item(item: Availability) -> ItemAvailability {
    let status = match item.status {
        decide::Status::InStock => StockStatus::InStock,
        decide::Status::LowStock => StockStatus::LowStock,
        decide::Status::OutOfStock => StockStatus::OutOfStock,
    };
    ItemAvailability { item_id: item.item_id, available_units: item.available_units, status: status.into() }
}

#[tonic::async_trait]
impl InventoryService for Service {
    async fn get_availability(
        &self,
        request: Request<GetAvailabilityRequest>,
    ) -> Result<Response<GetAvailabilityResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}
