//! Service: the gRPC edge of pricing. Protobuf stops here.

use base::{Phase, Refusal};
use model::policy::ServiceName;
use runtime::host::Channel;
use tonic::{Request, Response, Status};
use wire::{
    emulator::v1::{self as facts, FetchPricesRequest, price_book_service_client::PriceBookServiceClient},
    pricing::v1::{
        GetPricesRequest, GetPricesResponse, Money, PriceLine, pricing_service_server::PricingService,
    },
};

use crate::decide::{self, Discount, Order, PriceEntry};

pub(crate) struct Service {
    book: PriceBookServiceClient<Channel>,
}

impl Service {
    pub(crate) fn new(book: Channel) -> Self {
        Self { book: PriceBookServiceClient::new(book) }
    }

    async fn resolve(&self, request: Request<GetPricesRequest>) -> Result<GetPricesResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Pricing).reserve;
        let GetPricesRequest { item_ids, currency_code, claims } = request.into_inner();
        let order = Order::new(item_ids, &currency_code, claims)?;
        let question = FetchPricesRequest {
            tenant: context.identity.tenant.as_str().to_owned(),
            item_ids: order.items().to_vec(),
            currency_code,
        };
        progress.enter(Phase::Upstream);
        let answer = self.book.clone().fetch_prices(runtime::outbound(&context, reserve, question)).await;
        let entries =
            answer.map_err(|status| runtime::upstream_error(Phase::Upstream, &status))?.into_inner().entries;
        progress.enter(Phase::Handler);
        let lines = decide::price(order, entries.into_iter().map(entry).collect())?;
        Ok(GetPricesResponse { lines: lines.into_iter().map(line).collect() })
    }
}

fn entry(entry: facts::PriceEntry) -> PriceEntry {
    let discounts = entry.discounts.into_iter();
    PriceEntry {
        item_id: entry.item_id,
        currency_code: entry.currency_code,
        list_minor_units: entry.list_minor_units,
        discounts: discounts
            .map(|discount| Discount { claim: discount.claim, basis_points: discount.basis_points })
            .collect(),
    }
}

fn line(line: decide::PriceLine) -> PriceLine {
    PriceLine {
        item_id: line.item_id,
        list_price: Some(money(line.list)),
        net_price: Some(money(line.net)),
        discount_basis_points: line.discount_basis_points,
        discount_claim: line.discount_claim,
    }
}

fn money(money: decide::Money) -> Money {
    Money { currency_code: money.currency.code().to_owned(), minor_units: money.minor_units }
}

#[tonic::async_trait]
impl PricingService for Service {
    async fn get_prices(
        &self,
        request: Request<GetPricesRequest>,
    ) -> Result<Response<GetPricesResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}
